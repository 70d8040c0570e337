package killtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// variable holds the arguments of a process that is to be killed.
const variable = "HAPSNAP_KILLTEST"

// Main is for TestMain. In a process that [Run] started, it calls do with the
// arguments and ends; what do returns is printed. Elsewhere it returns at once.
func Main(do func(args []string) (string, error)) {
	text, doomed := os.LookupEnv(variable)
	if !doomed {
		return
	}
	said, err := do(strings.Split(text, "\n"))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(said)
	os.Exit(0)
}

// Fate is what becomes of a process at a write.
type Fate int

// The fates.
const (
	Kill        Fate = iota // it ends, as by kill -9
	Fail                    // the write fails, as on a disk that is full; the next does not
	KillSending             // as Kill, where only what is sent to other processes counts
)

// Outcome is how a process ended.
type Outcome struct {
	Met    bool   // it came to the write
	Killed bool   // it was killed there
	Failed bool   // it ended by itself, with an error
	Said   string // what it printed
	Point  string // the write, for the log
}

// Run starts a process that calls what [Main] was given with the arguments, none of
// which has a line break. The process meets its fate when it is about to make its nth
// write.
func Run(t *testing.T, fate Fate, n int, args ...string) Outcome {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.CreateTemp(t.TempDir(), "said")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	env := append(os.Environ(), variable+"="+strings.Join(args, "\n"))
	traced := make(chan error, 1)
	var o Outcome
	go func() { // becomes the tracer, and its thread ends with it
		var err error
		o, err = trace(exe, env, said, tracer{fate: fate, left: n})
		traced <- err
	}()
	if err := <-traced; err != nil {
		t.Fatalf("trace a process: %v", err)
	}
	data, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	o.Said = strings.TrimSpace(string(data))
	return o
}
