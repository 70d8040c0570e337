package stores

import (
	"log/slog"

	"github.com/spf13/pflag"
)

// AddFlags declares what both programs can be told of any store.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	c := &o.Credentials
	flags.StringVar(&o.CacheDir, "cache-dir", "", "folder for what is fetched from a git store")
	flags.StringVar(&c.TokenFile, "git-token-file", "", "file with the token, or the password of the URL's user, for git+https://")
	flags.StringVar(&c.CAFile, "git-ca-file", "", "file with certificates to trust besides the system's, for git+https://")
	flags.StringVar(&c.SSHKeyFile, "git-ssh-key", "", "file with the private key for git+ssh://")
	flags.StringVar(&c.KnownHostsFile, "git-known-hosts", "", "file with the keys of hosts for git+ssh:// (default: the user's and the system's known_hosts)")
}

// WithLog returns the options with a log.
func (o Options) WithLog(log *slog.Logger) Options {
	o.Log = log
	return o
}
