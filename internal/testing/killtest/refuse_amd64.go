package killtest

import "syscall"

// skip prevents the system call at which a thread is stopped.
func skip(thread int) error {
	return withRegisters(thread, func(r *syscall.PtraceRegs) { r.Orig_rax = ^uint64(0) })
}

// answer makes the system call that a thread returns from fail.
func answer(thread int, errno syscall.Errno) error {
	return withRegisters(thread, func(r *syscall.PtraceRegs) { r.Rax = -uint64(errno) })
}

func withRegisters(thread int, change func(*syscall.PtraceRegs)) error {
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(thread, &r); err != nil {
		return err
	}
	change(&r)
	return syscall.PtraceSetRegs(thread, &r)
}
