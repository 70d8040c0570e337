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
	for _, f := range []struct {
		value       *string
		name, usage string
	}{
		{&o.Key.File, "signing-key", "file with the private key, of SSH or OpenPGP, that signs what is written to a store in git or ConfigMaps"},
		{&o.Key.PassphraseFile, "signing-passphrase-file", "file with the passphrase of that key, if it has one"},
		{&o.Allowed.SignersFile, "allowed-signers", "file with the SSH keys whose signatures are accepted in a store in git or ConfigMaps, as ssh-keygen reads it"},
		{&o.Allowed.KeyringFile, "keyring", "file with the OpenPGP keys whose signatures are accepted there"},
	} {
		flags.StringVar(f.value, f.name, "", f.usage)
		flags.StringVar(f.value, "git-"+f.name, "", "as --"+f.name+", which it was called before")
		_ = flags.MarkHidden("git-" + f.name) // fails for unknown flags only
	}
}

// WithLog returns the options with a log.
func (o Options) WithLog(log *slog.Logger) Options {
	o.Log = log
	return o
}
