// Package killtest kills a process at the Nth of its writes, for every N, or has the
// write fail. A test says what the process does; the process is the test's own binary
// once more, and a tracer (ptrace(2)) stops it before each system call. So what is
// tested is what kill -9 does, and a disk that is full: the kernel was told so much
// and no more.
//
// A write is a system call that changes a file or a folder, or sends something.
// What threads tell each other is none.
package killtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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

// othersTime bounds the wait for what a killed process started.
const othersTime = 10 * time.Second

// awaitOthers waits for the processes of a group, such as git, which end when they
// find gone who started them.
func awaitOthers(group int) {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(othersTime); lives(group); <-look.C {
		if time.Now().After(end) {
			_ = syscall.Kill(-group, syscall.SIGKILL)
			return
		}
	}
}

// lives reports whether a process of the group runs. Who has ended and was not yet
// waited for by init does not count, which kill(2) cannot tell.
func lives(group int) bool {
	if syscall.Kill(-group, 0) != nil {
		return false
	}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		// proc_pid_stat(5): the name may hold anything, and ends at the last bracket.
		_, fields, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
		var state string
		var parent, its int
		if _, err := fmt.Sscan(fields, &state, &parent, &its); err == nil && its == group && state != "Z" {
			return true
		}
	}
	return false
}
