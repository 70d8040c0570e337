// Package scratch makes folders that a process needs for a while. [Sweep] removes the folders of
// processes that were killed: only a folder that certainly is one, belongs to this user, and whose
// process has ended. A lock on a file in the folder tells whether its process lives, since the kernel
// gives it back however the process ends.
package scratch
