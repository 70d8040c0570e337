// Package killtest kills a process at the Nth of its writes, for every N, or makes the write fail. A test says
// what the process does. The process is the test's own binary once more, and a tracer (ptrace(2)) stops it
// before each system call. So the tests see exactly the effects of kill -9, and of a full disk: the kernel has
// carried out the system calls up to that point and no others.
//
// A write is a system call that changes a file or a folder, or sends something. Messages between threads do not
// count.
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

// variable holds the arguments of a process to be killed.
const variable = "HAPSNAP_KILLTEST"

// Main is for TestMain. In a process that [Run] started, it calls do with the arguments, prints what do
// returns, and ends. In other processes it returns at once.
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

// Fate says what happens to a process at a write.
type Fate int

// The fates.
const (
	Kill        Fate = iota // it ends, as by kill -9
	Fail                    // the write fails, as on a disk that is full; the next does not
	KillSending             // as Kill, but only what is sent to other processes counts
)

// Outcome says how a process ended.
type Outcome struct {
	Met    bool   // it reached the write
	Killed bool   // it was killed there
	Failed bool   // it ended by itself, with an error
	Said   string // what it printed
	Point  string // the write, for the log
}

// Run starts a process that calls the function that [Main] got, with the arguments, none of which has a line
// break. The process meets its fate when it is about to make its nth write.
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

// othersTime bounds the wait for processes that a killed process started.
const othersTime = 10 * time.Second

// awaitOthers waits for the processes of a group, such as git, which end when they notice that their parent is
// gone.
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

// lives reports whether a process of the group runs. A process that has ended and for which init has not waited
// yet does not count, which kill(2) cannot tell.
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
