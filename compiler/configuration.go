package compiler

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Configuration is where a compiler that runs has its configuration from: a
// [ConfigFile], or an object of a cluster.
type Configuration interface {
	// Read returns the text of the configuration as it is now, and the name that it
	// has in diagnostics. With an error nothing is known of it.
	Read(ctx context.Context) (name string, data []byte, err error)
	// Changes sends when the text may be another than at the last Read: once for any
	// number of changes that nobody has taken from the channel yet. It ends with ctx.
	Changes(ctx context.Context, log *slog.Logger) <-chan struct{}
}

// ConfigFile is a configuration in a file. It may be replaced by renaming, or lie in
// a volume of a ConfigMap, where a symbolic link is.
type ConfigFile string

// Read reads the file.
func (f ConfigFile) Read(context.Context) (name string, data []byte, err error) {
	if data, err = os.ReadFile(string(f)); err != nil {
		err = fmt.Errorf("read configuration: %w", err)
	}
	return string(f), data, err
}

// Changes watches the file.
func (f ConfigFile) Changes(ctx context.Context, log *slog.Logger) <-chan struct{} {
	return manifests.Watch(ctx, []string{string(f)}, log)
}

// settings judges what no form can be given for.
type settings interface {
	Settings(ctx context.Context, c config.Config) ([]field.Error, error)
}

// JudgeConfiguration reads the text of a configuration, puts what override changes
// over it, and returns it with everything that is wrong with it; then it is not to be
// used. The error is that of a check that could not be made.
func JudgeConfiguration(ctx context.Context, check settings, name string, data []byte, override func(*config.Config)) (config.Config, []diag.Diagnostic, error) {
	c, found := config.Parse(name, data)
	if len(found) > 0 {
		return config.Config{}, found, nil
	}
	if override != nil {
		override(&c)
	}
	faults := c.Check()
	if len(faults) == 0 {
		var err error
		if faults, err = check.Settings(ctx, c); err != nil {
			return config.Config{}, nil, err
		}
	}
	return c, config.PlacesOf(name, data).Locate(faults), nil
}
