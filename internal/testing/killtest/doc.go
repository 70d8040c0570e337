// Package killtest kills a process at the Nth of its writes, for every N, or has the
// write fail. A test says what the process does; the process is the test's own binary
// once more, and a tracer (ptrace(2)) stops it before each system call. So what is
// tested is what kill -9 does, and a disk that is full: the kernel was told so much
// and no more.
//
// A write is a system call that changes a file or a folder, or sends something.
// What threads tell each other is none.
package killtest
