package observe

import (
	"context"
	"log/slog"
	"time"
)

// Line is a fact that stands in the log and nowhere else.
type Line struct {
	level   slog.Level
	message string
	keys    []any
}

// Debug returns a line for who looks for a fault.
func Debug(message string, keys ...any) Line { return Line{slog.LevelDebug, message, keys} }

// Info returns a line about something that changed.
func Info(message string, keys ...any) Line { return Line{slog.LevelInfo, message, keys} }

// Warn returns a line about something that is tried again, or that somebody may have to look at.
func Warn(message string, keys ...any) Line { return Line{slog.LevelWarn, message, keys} }

// Error returns a line about something for which a person must act.
func Error(message string, keys ...any) Line { return Line{slog.LevelError, message, keys} }

// With returns the line with more keys.
func (l Line) With(keys ...any) Line {
	l.keys = append(l.keys[:len(l.keys):len(l.keys)], keys...)
	return l
}

func (l Line) tell(o *Observer, _ time.Time) {
	o.options.Log.Log(context.Background(), l.level, l.message, l.keys...) //nolint:sloglint // it is constant for each
}

func (l Line) String() string { return Describe(l.message, l.keys...) }
