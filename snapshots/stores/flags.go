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
	flags.StringVar(&o.Key.File, "git-signing-key", "", "file with the private key, of SSH or OpenPGP, that signs what is written to a git store")
	flags.StringVar(&o.Key.PassphraseFile, "git-signing-passphrase-file", "", "file with the passphrase of that key, if it has one")
	flags.StringVar(&o.Allowed.SignersFile, "git-allowed-signers", "", "file with the SSH keys whose signatures are accepted in a git store, as ssh-keygen reads it")
	flags.StringVar(&o.Allowed.KeyringFile, "git-keyring", "", "file with the OpenPGP keys whose signatures are accepted in a git store")
}

// WithLog returns the options with a log.
func (o Options) WithLog(log *slog.Logger) Options {
	o.Log = log
	return o
}
