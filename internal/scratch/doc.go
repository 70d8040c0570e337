// Package scratch makes folders for the time that a process needs them. What is left of
// those of processes that were killed is removed by [Sweep]: only what certainly is such a
// folder, of this user, whose process has ended. That is told by a lock on a file in it,
// which the kernel gives back when a process ends, however it does.
package scratch
