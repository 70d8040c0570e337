package pusher

import "time"

// tidyInterval is how long dynamic servers that still had connections are left alone.
const tidyInterval = 5 * time.Second

// deferral returns how long after a post the next one waits that gives slots the addresses
// which dynamic servers serve meanwhile: posts of this kind take a fifth of the time, and
// an endpoint is without health checks for no longer than the file on disk may be behind.
func deferral(took, persistInterval time.Duration) time.Duration {
	const least = 500 * time.Millisecond
	return min(max(least, 4*took), persistInterval)
}
