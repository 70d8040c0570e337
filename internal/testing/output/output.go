// Package output keeps what a program or a goroutine writes while a test reads it.
package output

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer that several goroutines may use at once.
type Buffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
