package process

import (
	"io"
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/pflag"
)

// LogOptions are the flags of a program's log.
type LogOptions struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// AddFlags declares --log-level and --log-format.
func (o *LogOptions) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Level, "log-level", "info", "least severe messages to log: debug, info, warn or error")
	flags.StringVar(&o.Format, "log-format", "text", "format of the log: text or json")
}

// Logger returns a logger that writes to w, or a usage error.
func (o LogOptions) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return nil, Usage("--log-level=%s: want debug, info, warn or error", o.Level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, Usage("--log-format=%s: want text or json", o.Format)
}

// LimitMemory sets GOMEMLIMIT to nine tenths of the container's memory limit,
// so that Go collects garbage before the kernel kills the process. Without a
// limit, or where GOMEMLIMIT is set already, it changes nothing.
func LimitMemory(log *slog.Logger) {
	limit, err := memlimit.Set()
	if err != nil {
		log.Debug("memory limit not set", "err", err)
		return
	}
	log.Debug("memory limit set", "bytes", limit)
}
