package scratch

import "os"

// isMine reports true: each user of Windows has a temporary folder of their own.
func isMine(os.FileInfo) bool { return true }
