package killtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

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
