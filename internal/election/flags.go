package election

import (
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
)

// Flags say by which Lease, and with which times, one of several processes is elected.
type Flags struct {
	Lease string // NAMESPACE/NAME; "" is the program's usual one
	Times Times
}

// AddTo declares --lease, with a help text, and the flags of the times, for a program.
func (f *Flags) AddTo(flags *pflag.FlagSet, program, lease string) {
	flags.StringVar(&f.Lease, "lease", "", lease)
	f.Times.AddFlags(flags, program)
}

// Name returns the name of the Lease, or the usual one if the flags name none.
func (f *Flags) Name(program string, usual func() (types.NamespacedName, error)) (types.NamespacedName, error) {
	if f.Lease == "" {
		return usual()
	}
	name, err := objectname.Parse(f.Lease)
	if err != nil {
		return name, process.WithHint(process.Usage("--lease %w", err), "name a Lease such as edge/hapsnap-"+program)
	}
	return name, nil
}

// Check returns what is wrong with the times.
func (f *Flags) Check() error {
	if err := f.Times.Check(); err != nil {
		return process.Usage("%w", err)
	}
	return nil
}
