// Package stores opens a snapshot store by its URL. Only the programs import it; their packages declare the few
// methods that they call, and know no kind of store.
package stores

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/delivery"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
	"github.com/hapsnap/hapsnap/snapshots/gitstore"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
)

// Reader reads snapshots.
type Reader interface {
	// View returns the IDs of all snapshots and the channel. It is cheap enough for polling. An empty store has
	// no IDs; a store that does not exist or cannot be reached is an error.
	View(ctx context.Context) (channel.View, error)
	// IDs returns those of View, even if the channel cannot be read: it is for callers that do not need the
	// channel.
	IDs(ctx context.Context) ([]snapshots.ID, error)
	// Remember tells the store what a reader saw of it before, as the view says. From then on View and the
	// functions that change the channel return an error that wraps [channel.ErrRewound] if that is gone.
	Remember(seen channel.Seen)
	// Get returns a snapshot whose every digest has been verified, or an error. The error wraps
	// [snapshots.ErrNotFound] or [snapshots.ErrCorrupt] if one of them is the cause.
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
	// Manifest returns the manifest alone; the errors are those of Get.
	Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error)
}

// Writer changes a store. Any number of writers may share one.
type Writer interface {
	// Publish adds the draft as the newest snapshot. If the newest has its
	// content already, that one is returned, and false.
	Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error)
	// UpdateChannel lets edit change the channel. If another writer was faster, it calls edit again, on the new
	// channel. Subject describes the edit, for people.
	UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error
	// Delete removes snapshots, but never the newest. It skips those that do not exist.
	Delete(ctx context.Context, ids ...snapshots.ID) error
}

// Journal has the acts on the channel, and the entries about rollouts. No decision depends on it.
type Journal interface {
	// Journal returns the entries that there are, the oldest first.
	Journal(ctx context.Context) ([]channel.Entry, error)
	// Record adds entries about rollouts. The store itself adds the acts on the channel.
	Record(ctx context.Context, now time.Time, entries ...channel.Entry) error
}

// Store is everything that any store can do. Take a smaller interface except in main.
type Store interface {
	Reader
	Writer
	Journal
	io.Closer
	fmt.Stringer // the URL, without a password
}

// Options are settings that the URL does not have. The zero value is fine.
type Options struct {
	CacheDir    string               // git: for fetched data
	Credentials gitstore.Credentials // git: for remotes
	Author      gitstore.Author      // git: the author of the commits
	Key         signature.Key        // git, configmap: signs what is written
	Allowed     signature.Allowed    // git, configmap: whose signatures are accepted
	Cluster     kubeconfig.Options   // configmap: where it is
	Publish     bool                 // whether to write snapshots, which some stores are not for
	Log         *slog.Logger
}

// Forms are the URLs that Open takes, for help texts. With &deliver=NAMESPACE/NAME in the URL of a git store,
// kustomize makes ConfigMaps of what is published.
const Forms = `  dir:PATH, or the PATH of a directory
  git+file:///PATH?branch=NAME
  git+https://[USER@]HOST/PATH?branch=NAME, with --git-token-file
  git+ssh://[USER@]HOST/PATH?branch=NAME, with --git-ssh-key
  configmap:NAMESPACE/NAME

With &review=STAGING, people merge into it from the branch STAGING of the compiler. With
&deliver=NAMESPACE/NAME, what is published to git gets a kustomization.yaml, by which Argo CD or
Flux takes it to the store configmap:NAMESPACE/NAME of a cluster. In a shell, put the URL of a git
store in quotes.`

// Open opens the store at a URL, which has one of the [Forms]. The branch of a git store is main unless the URL
// names one. Open does not contact the store. A URL that it cannot understand is a usage error.
func Open(_ context.Context, text string, o Options) (Store, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch {
	case text == "":
		return nil, usage("no store is named")
	case o.signs() && !strings.HasPrefix(text, "git+") && !InCluster(text):
		return nil, process.WithHint(process.Usage("store %s: only what is in git or ConfigMaps can be signed", text), "leave out --signing-key, --allowed-signers and --keyring")
	case o.Key.File == "" && o.Key.PassphraseFile != "":
		return nil, process.WithHint(process.Usage("there is a passphrase and no key that has it"), "use --signing-key FILE")
	case LikeGit(text) != "":
		return nil, process.WithHint(process.Usage("store %s is a git repository, and not written as one", redacted(text)), "write "+LikeGit(text))
	case !HasScheme(text):
		return dirstore.Open(text, dirstore.Options{Log: o.Log}), nil
	case scheme == "dir" && rest == "":
		return nil, usage("store %q names no directory", text)
	case scheme == "dir":
		return dirstore.Open(rest, dirstore.Options{Log: o.Log}), nil
	case InCluster(text):
		return openConfigMaps(text, o)
	case strings.HasPrefix(scheme, "git+"):
		return openGit(text, o)
	default:
		return nil, usage("store %q: unknown scheme %s:", text, scheme)
	}
}

// NoSnapshots returns the error of a verb that reads and finds no snapshot in a store. The URL may name the
// wrong store, so the error lists the others in the same place.
func NoSnapshots(ctx context.Context, s Reader) error {
	err, hint := fmt.Errorf("there is no snapshot in %s", s), "compiler run and compiler render publish snapshots; name the store that they have"
	in, ok := s.(interface {
		// Others returns the names of other stores in the same place, and what kind they are.
		Others(ctx context.Context) (what string, names []string, err error)
	})
	if !ok {
		return process.WithHint(err, hint)
	}
	what, names, failed := in.Others(ctx)
	switch {
	case failed != nil || len(names) == 0:
		return process.WithHint(err, hint)
	case len(names) > mostOthers:
		names = append(names[:mostOthers:mostOthers], "…")
	}
	return process.WithHint(fmt.Errorf("%w; the %s are %s", err, what, strings.Join(names, ", ")), hint)
}

// mostOthers is how many other stores an error names.
const mostOthers = 20

// HasScheme tells a URL from the path of a directory.
func HasScheme(text string) bool {
	scheme, _, ok := strings.Cut(text, ":")
	return ok && !strings.ContainsAny(scheme, "/.")
}

// signs reports whether signatures should be made or verified.
func (o Options) signs() bool { return o.Key.Enabled() || o.Allowed.Enabled() }

func usage(format string, args ...any) error {
	return process.WithHint(process.Usage(format, args...), "a store is one of\n\t\t"+strings.ReplaceAll(Forms, "\n", "\n\t\t"))
}

// InCluster reports whether a URL is that of a store in a cluster. The options say how to reach the cluster.
func InCluster(text string) bool { return strings.HasPrefix(text, configmapstore.Scheme) }

func openConfigMaps(text string, o Options) (Store, error) {
	name, err := configmapstore.Parse(text)
	if err != nil {
		return nil, usage("%w", err)
	}
	config, err := o.Cluster.Load()
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("open %s: %w", text, err), "name a kubeconfig file with --kubeconfig")
	}
	s, err := configmapstore.Open(configmapstore.Options{Config: config, Namespace: name.Namespace, Name: name.Name, Key: o.Key, Allowed: o.Allowed, Log: o.Log})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", text, err)
	}
	return s, nil
}

// LikeGit returns the URL of a store for a text that names a repository as git does: by git@host:path, by a URL
// without git+, or by a path that is a repository or ends like one. It returns "" for anything else.
func LikeGit(text string) string {
	const branch = "?branch=NAME"
	scheme, rest, isURL := strings.Cut(text, "://")
	if isURL && slices.Contains(gitSchemes, "git+"+scheme) {
		if user, host, ok := strings.Cut(rest, "@"); ok {
			name, _, _ := strings.Cut(user, ":") // without the password
			rest = name + "@" + host
		}
		return "git+" + scheme + "://" + rest + branch
	}
	for _, form := range []*regexp.Regexp{scpWithUser, scpWithSuffix} {
		if parts := form.FindStringSubmatch(text); parts != nil && parts[2] != "dir" && parts[2] != "configmap" {
			return "git+ssh://" + cmp.Or(parts[1], "git@") + parts[2] + "/" + parts[3] + branch + ", with --git-ssh-key FILE"
		}
	}
	path := strings.TrimPrefix(text, "dir:")
	if HasScheme(path) || !isBareRepository(path) && (path != text || !strings.HasSuffix(path, ".git") || isDirectory(path)) {
		return ""
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return (&url.URL{Scheme: "git+file", Path: path}).String() + branch
}

// The forms in which git names a repository behind SSH, beside URLs.
var (
	scpWithUser   = regexp.MustCompile(`^([\w.-]+@)([\w.-]+):/?([^/].*)$`)
	scpWithSuffix = regexp.MustCompile(`^()([\w.-]{2,}):/?([^/].*\.git)$`)
)

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// redacted returns a URL without its password.
func redacted(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return text
}

// isBareRepository reports whether path is the folder in which git keeps its own files, which is surely not
// meant as a directory of snapshots.
func isBareRepository(path string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(path, name)); err != nil {
			return false
		}
	}
	return true
}

// gitSchemes are the schemes for which go-git has a transport, except git://, which neither authenticates the
// server nor encrypts. Nor does http://, which is for the same host.
var gitSchemes = []string{"git+file", "git+https", "git+http", "git+ssh"}

func openGit(text string, o Options) (Store, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse repeats the URL, which may hold a password.
		return nil, usage("the URL of the store cannot be parsed")
	}
	if !slices.Contains(gitSchemes, u.Scheme) {
		return nil, usage("store %s: unknown scheme %s:", u.Redacted(), u.Scheme)
	}
	if u.Scheme == "git+file" && (u.Host != "" || u.Opaque != "" || !filepath.IsAbs(u.Path)) {
		return nil, usage("store %s: the path of git+file:// is absolute, as in git+file:///srv/edge.git", text)
	}
	if u.Scheme != "git+file" && (u.Host == "" || strings.Trim(u.Path, "/") == "") {
		return nil, usage("store %s: host or path is missing", u.Redacted())
	}
	q, err := parseQuery(u)
	if err != nil {
		return nil, err
	}
	if o.Publish && q.review != "" {
		return nil, process.WithHint(process.Usage("store %s: people merge into %s, and nothing else writes there", u.Redacted(), cmp.Or(q.branch, gitstore.DefaultBranch)),
			"publish to the branch that they merge from: ?branch="+q.review)
	}
	if _, has := u.User.Password(); has {
		u.User = url.User(u.User.Username())
		return nil, process.WithHint(process.Usage("store %s: the password in its URL can be read by whoever lists the processes", u), "leave it out of the URL, and name a file that holds it with --git-token-file")
	}
	remote := *u
	remote.Scheme, remote.RawQuery = strings.TrimPrefix(u.Scheme, "git+"), ""
	s, err := gitstore.Open(gitstore.Options{
		URL: remote.String(), Credentials: o.Credentials, Branch: q.branch, Review: q.review, Deliver: q.deliver, CacheDir: o.CacheDir,
		Author: o.Author, Key: o.Key, Allowed: o.Allowed, Log: o.Log,
	})
	if hint := process.Hint(err); hint != "" {
		return nil, process.WithHint(process.Usage("store %s: %w", u.Redacted(), err), hint)
	}
	if err != nil {
		return nil, usage("store %s: %w", u.Redacted(), err)
	}
	return s, nil
}

// AddFlags declares the flags for stores that both programs have.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	c := &o.Credentials
	flags.StringVar(&o.CacheDir, "cache-dir", "", "folder for commits that are fetched from a git store")
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

// query is the part after ? in the URL of a git store.
type query struct {
	branch  string          // "": the usual one
	review  string          // "": the branch is written to
	deliver delivery.Target // zero: none
}

// parseQuery reads the part after ?. Reading a store ignores the target of a delivery, so that both programs
// can have the same URL.
func parseQuery(u *url.URL) (query, error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return query{}, usage("store %s: the parameters after ? cannot be parsed", u.Redacted())
	}
	for name, given := range values {
		if !slices.Contains([]string{"branch", "review", "deliver"}, name) || len(given) != 1 || given[0] == "" {
			return query{}, usage("store %s: only ?branch=NAME can be given, once, and review=NAME and deliver=NAMESPACE/NAME", u.Redacted())
		}
	}
	q := query{branch: values.Get("branch"), review: values.Get("review")}
	if text := values.Get("deliver"); text != "" {
		if q.deliver, err = delivery.ParseTarget(text); err != nil {
			return query{}, usage("store %s: deliver: %w", u.Redacted(), err)
		}
	}
	return q, nil
}

// mostDescribed is how many of the newest snapshots a completion shows with their subjects, and describing is
// how long reading them may take.
const (
	mostDescribed = 30
	describing    = time.Second
)

// Described returns the names of snapshots, the newest first, for completion. Each has a description of its
// changes, if that can be read quickly.
func Described(ctx context.Context, store Reader, ids []snapshots.ID) []cobra.Completion {
	ctx, cancel := context.WithTimeout(ctx, describing)
	defer cancel()
	var out []cobra.Completion
	for _, id := range slices.Backward(ids) {
		word := id.String()
		if len(out) < mostDescribed && ctx.Err() == nil {
			if m, err := store.Manifest(ctx, id); err == nil && m.Spec.Subject != "" {
				word = cobra.CompletionWithDesc(word, m.Spec.Subject)
			}
		}
		out = append(out, word)
	}
	return out
}
