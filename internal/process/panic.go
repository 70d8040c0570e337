package process

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// PanicError is a panic as an error: a mistake of the program that something brought out.
type PanicError struct {
	Value any
	// Place is the function that panicked, with its file's line.
	Place string
}

// Error says what happened and where.
func (p PanicError) Error() string { return fmt.Sprintf("panic: %v, in %s", p.Value, p.Place) }

// Caught calls a function, and returns its error or its panic, as a [PanicError].
func Caught(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicOf(value)
		}
	}()
	return do()
}

// panicOf is called while a panic is under way.
func panicOf(value any) PanicError {
	if err, ok := value.(error); ok {
		if p, ok := errors.AsType[PanicError](err); ok {
			return p // from another goroutine
		}
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicking = true
		case panicking:
			return PanicError{value, fmt.Sprintf("%s, line %d", f.Function, f.Line)}
		}
		if !more {
			return PanicError{value, "an unknown place"}
		}
	}
}

// Catcher brings panics of several goroutines to the one that started them. A panic that no goroutine catches ends the
// whole program, whatever the caller does.
type Catcher struct {
	lock  sync.Mutex
	first error
}

// Do calls a function and keeps its panic.
func (c *Catcher) Do(do func()) {
	err := Caught(func() error { do(); return nil })
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.first == nil {
		c.first = err
	}
}

// Rethrow panics with the first panic that was kept, if there was one.
func (c *Catcher) Rethrow() {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.first != nil {
		panic(c.first)
	}
}
