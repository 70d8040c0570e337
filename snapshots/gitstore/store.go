// Package gitstore keeps snapshots on a branch of a git repository, one commit
// for each:
//
//	refs/heads/edge            the newest snapshot: its files at the root, and snapshot.yaml
//	refs/tags/edge/r000123-…   each snapshot by its name
//	refs/heads/edge-channel    channel.yaml, which people may edit in pull requests
//
// A snapshot that is delivered into a cluster also has the files of package [delivery]. So
// `git log -p haproxy.cfg` shows what changed, any revision can be fetched by its name without its
// history, and one `git ls-remote` answers a poll.
//
// With a branch for review ([Options.Review]) the compiler writes to another branch, and people merge
// that into the branch of the store. The store then takes the tags of the other branch, and publishes
// nothing to its own.
//
// If a snapshot was made of many objects, their names and versions are in small files in the folder
// inputs ([snapshots.Manifest.Split]), and not in snapshot.yaml. Git stores each changed file as a
// whole; with 10,000 routes this one file took five times as much as all the others.
//
// [Options.Key] signs commits. With [Options.Allowed], the store holds commits that no allowed signer
// has signed.
//
// The package promises that it never pushes by force: each push names the tip that it was built on,
// and the server refuses it if the tip has moved. A commit that is no snapshot is [ErrForeign], and a
// branch that went back is [ErrRewound]. Both are reported, and hold the store until a person decides.
// If the answer to a push is lost, the store looks at the branch; commit IDs are reproducible, so that
// this is enough. A repository that cannot be reached is an error, and never an empty store.
//
// The package speaks git's wire protocol, and does not use go-git's Fetch and Push. Those walk
// histories, and negotiate by what is stored locally. Here a push is one pack, built in memory, with
// the objects that the tip does not have, and a fetch asks for one commit at depth 1. So the thousandth
// snapshot costs as much as the tenth. The bare repository on disk is a cache of this process alone. A
// fresh one replaces it every 50 fetches, since go-git never packs or collects.
//
// Of a repository on this host, a publish reads the branches of the store, and the tags that are not older than the
// newest snapshot; git hides the others from the push. Only where something is not as the last writer left it, all are
// listed. Every 64th revision the tags are packed. The server of another repository looks at every reference for each
// listing and each push; that costs little if its gc packs them, and if old snapshots are deleted.
//
// A remote is a path, file://, https://, ssh://, or, on the same host only, http://. The git that is
// installed serves paths and file://. Credentials are in files ([Credentials]), which are read for each
// connection; no message contains them. The package never talks to an SSH server whose key it does not
// know. No call takes longer than its context allows, or than two minutes.
//
// # Decisions
//
// In git, each snapshot also has a tag (<branch>/<id>), pushed atomically with the
// branch, so that one ls-remote lists everything, and any revision can be fetched at
// depth 1. The channel lives on a branch of its own (<branch>-channel), which people may
// edit in pull requests without meeting the one-writer rule of the snapshot branch.
//
// Credentials of git remotes are files, read for each connection: a mounted Secret changes
// while a program runs, and a flag or a URL shows in lists of processes. The text of a
// server's refusal is not repeated, since it may contain what the server was sent. A call
// does not repeat what was refused; the loops around it try again at their own pace.
//
// An SSH host key is known or refused, and never learned. There is no SSH agent: go-git
// opens one connection to the agent for each connection to the server, and closes none.
//
// git+http:// works for the same host only, for tests and proxies. Elsewhere it would send
// the token in the clear.
package gitstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/delivery"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// DefaultBranch is the branch of a store that names none.
const DefaultBranch = "main"

// Options configure a store and its writer.
type Options struct {
	URL         string // file:///path, a path, https://… or ssh://…; http:// on this host
	Credentials Credentials
	Branch      string // default: DefaultBranch
	// Review is the branch that the compiler writes to, if that is not Branch itself: people review
	// there and merge into Branch, which then only says what may run.
	Review   string
	Name     string // in the subjects of commits; default: the branch
	CacheDir string // for what is fetched; default: hapsnap in the user's cache folder
	// Deliver is the store in a cluster into which Argo CD or Flux brings what is published; default:
	// none.
	Deliver delivery.Target
	Author  Author
	Key     signature.Key     // for the commits that are made; none if empty
	Allowed signature.Allowed // whose commits are read; anybody's if empty
	Log     *slog.Logger      // default: discards
}

// Author is the author of the commits.
type Author struct {
	Name  string // default: hapsnap
	Email string // default: hapsnap@localhost
}

// Store is a branch of a git repository. It is safe for concurrent use, and serves one call at a time.
// Any number of Stores and processes may share the repository.
type Store struct {
	options  Options
	named    bool // whether the branch was named
	endpoint *transport.Endpoint
	names    names // of the branch and its channel
	shelf    names // of what is published: the same, or those of Review
	remote   remote
	cache    commitCache

	// turn holds a token while no call uses what is below.
	turn      chan struct{}
	closed    bool
	last      refs                      // the last listing
	branches  []string                  // of all stores and people in it
	tip       tip                       // the last tip that was verified
	seen      snapshots.ID              // the newest tip that was seen and verified
	channel   plumbing.Hash             // the last tip of the channel's branch that was believed
	unrelated [2]plumbing.Hash          // that one, and another that was found not to follow it
	acts      acted                     // what the history of the channel says
	merge     tip                       // the last tip that was merged from Review
	verdicts  map[plumbing.Hash]verdict // of commits with tags
	strange   map[snapshots.ID]bool     // tags that were passed over, and it was said

	// step is called at each point where the process could be killed. Tests
	// set it; an error from it ends the call there and then.
	step func(string) error
}

// acted is what the commits of a channel say, up to a tip.
type acted struct {
	tip plumbing.Hash
	all []channel.Entry
}

// tip is a commit of the branch that holds a snapshot, and the hashes of its files. The zero value is
// the tip of a branch that does not exist yet.
type tip struct {
	sequence.Head
	commit plumbing.Hash
	files  blobs
	// bad says why the commit cannot be read, though it has the tag of the snapshot.
	bad error
}

// Open checks the options. It does not contact the repository, and makes nothing.
func Open(o Options) (*Store, error) {
	named := o.Branch != ""
	o.Branch = cmp.Or(o.Branch, DefaultBranch)
	o.Name = cmp.Or(o.Name, o.Branch)
	o.Author.Name = cmp.Or(o.Author.Name, "hapsnap")
	o.Author.Email = cmp.Or(o.Author.Email, "hapsnap@localhost")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.CacheDir = cmp.Or(o.CacheDir, defaultCache())
	for _, branch := range []string{o.Branch, cmp.Or(o.Review, o.Branch)} {
		if err := plumbing.NewBranchReferenceName(branch).Validate(); err != nil {
			return nil, fmt.Errorf("branch %q: %w", branch, err)
		}
	}
	if o.Review == o.Branch {
		return nil, fmt.Errorf("branch %s cannot be reviewed on itself", o.Branch)
	}
	if strings.ContainsAny(o.Author.Name+o.Author.Email, "<>\n\x00") {
		return nil, fmt.Errorf("author %q <%q>: git allows no brackets and line breaks", o.Author.Name, o.Author.Email)
	}
	endpoint, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if err := o.Credentials.check(endpoint); err != nil {
		return nil, err
	}
	s := &Store{
		options:  o,
		named:    named,
		endpoint: endpoint,
		names:    names(o.Branch),
		shelf:    names(cmp.Or(o.Review, o.Branch)),
		cache:    commitCache{folder: o.CacheDir, limit: freshAfter, tooLarge: map[plumbing.Hash]error{}},
		turn:     make(chan struct{}, 1),
		verdicts: map[plumbing.Hash]verdict{}, strange: map[snapshots.ID]bool{},
		step: func(string) error { return nil },
	}
	s.remote = newWire(endpoint, o.Credentials, s.at)
	s.turn <- struct{}{}
	return s, nil
}

// parseURL reads the URL of a repository. Text without a scheme is a path, and
// never the user@host:path of SSH, which a path may look like.
func parseURL(text string) (*transport.Endpoint, error) {
	if text == "" {
		return nil, errors.New("no URL of a git repository")
	}
	if !strings.Contains(text, "://") {
		path, err := filepath.Abs(text)
		return &transport.Endpoint{Protocol: "file", Path: path}, err
	}
	e, err := transport.NewEndpoint(text)
	if err != nil {
		return nil, fmt.Errorf("git repository: %w", err)
	}
	if e.Protocol == "file" && (e.Host != "" || !filepath.IsAbs(e.Path)) {
		return nil, fmt.Errorf("git repository %s: write it as file:///path", text)
	}
	return e, nil
}

// defaultCache is the user's cache folder, or the system's folder for temporary
// files where a user has none, as in a container.
func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "hapsnap")
}

// String returns the store's URL, without a password.
func (s *Store) String() string {
	u := url.URL{Scheme: "git+" + s.endpoint.Protocol, Host: s.endpoint.Host, Path: s.endpoint.Path}
	if s.endpoint.User != "" {
		u.User = url.User(s.endpoint.User)
	}
	if s.endpoint.Port != 0 {
		u.Host += ":" + strconv.Itoa(s.endpoint.Port)
	}
	query := url.Values{"branch": {s.options.Branch}}
	if s.reviewed() {
		query.Set("review", s.options.Review)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Close waits for the call that is being served and removes the cache. The
// store cannot be used any more.
func (s *Store) Close() error {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	s.closed = true
	s.cache.drop()
	return nil
}

// begin waits until no other call uses the store. The caller ends with calling done.
func (s *Store) begin(ctx context.Context) (done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("use %s: %w", s, err)
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for %s: %w", s, ctx.Err())
	}
	done = func() { s.turn <- struct{}{} }
	if s.closed {
		done()
		return nil, fmt.Errorf("use %s: %w", s, errClosed)
	}
	return done, nil
}

// at runs the step of a test.
func (s *Store) at(point string) error {
	if err := s.step(point); err != nil {
		return stopped{err}
	}
	return nil
}

// list asks the repository for its references. Git reads one after the other, while others write: a
// listing that is inconsistent for that reason is consistent the next time.
func (s *Store) list(ctx context.Context) (refs, error) {
	r, err := s.listOnce(ctx)
	if err == nil && !s.reviewed() && r.torn() {
		return s.listOnce(ctx)
	}
	return r, err
}

// notFound returns the error for a repository that git does not find. Git says the same of one that cannot be read,
// such as for its mode: that one must not be taken for one that is not there.
func (s *Store) notFound() error {
	missing := fmt.Errorf("list %s: %w", s, ErrNoRepository)
	if s.endpoint.Protocol != "file" {
		return missing
	}
	for _, head := range []string{"HEAD", ".git/HEAD"} {
		f, err := os.Open(filepath.Join(s.endpoint.Path, head))
		if err == nil {
			_ = f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return process.WithHint(fmt.Errorf("list %s: the git repository cannot be read: %w", s, err),
				fmt.Sprintf("the user with the ID %d, as whom this runs, has to read it, and to write there to publish or to pin", os.Getuid()))
		}
	}
	return process.WithHint(missing, process.ShellCommand("git", "init", "--bare", "--initial-branch="+s.options.Branch, s.endpoint.Path))
}

func (s *Store) listOnce(ctx context.Context) (refs, error) {
	listing, err := s.remote.List(ctx)
	if errors.Is(err, transport.ErrRepositoryNotFound) {
		return refs{}, s.notFound()
	}
	if err != nil {
		return refs{}, fmt.Errorf("list %s: %w", s, err)
	}
	// Branches of channels and journals of stores do not count.
	var branches []string
	for name := range listing {
		short, ok := strings.CutPrefix(name, names("").branch().String())
		of, besides := strings.CutSuffix(name, names("").channel().Short())
		if !besides {
			of, besides = strings.CutSuffix(name, names("").journal().Short())
		}
		if _, found := listing[of]; ok && !(besides && found) {
			branches = append(branches, short)
		}
	}
	slices.Sort(branches)
	s.last, s.branches = s.names.pick(listing), branches
	if s.reviewed() {
		shelf := s.shelf.pick(listing)
		s.last.tags, s.last.review = shelf.tags, shelf.branch
	}
	return s.last, nil
}

// head returns the ID of the newest snapshot, or zero if there is none.
func (s *Store) head(ctx context.Context, r refs) (snapshots.ID, error) {
	if s.reviewed() {
		return s.merged(ctx, r)
	}
	t, err := s.verifiedTip(ctx, r)
	return t.ID, err
}

// verifiedTip returns the tip of the branch. The error wraps [ErrForeign] if it
// is not a snapshot, [ErrRewound] if it is not the newest. A commit that has the tag of a
// snapshot and cannot be read has [tip.bad] set.
func (s *Store) verifiedTip(ctx context.Context, r refs) (tip, error) {
	t, err := s.readTip(ctx, r)
	if err != nil {
		return tip{}, err
	}
	return t, s.advance(ctx, r, t)
}

func (s *Store) readTip(ctx context.Context, r refs) (tip, error) {
	if r.branch.IsZero() {
		return tip{}, nil
	}
	if s.tip.commit == r.branch {
		return s.tip, nil
	}
	snapshot, files, err := s.load(ctx, r.branch)
	if id, tagged := r.tagged(); tagged && (isCorrupt(err) || errors.Is(err, snapshots.ErrUntrusted)) {
		return tip{Head: sequence.Head{ID: id}, commit: r.branch, bad: err}, nil
	}
	if isCorrupt(err) {
		return tip{}, s.foreign(err)
	}
	if err != nil {
		return tip{}, err
	}
	s.tip = tip{Head: sequence.HeadOf(snapshot), commit: r.branch, files: files}
	return s.tip, nil
}

// foreign returns the error about a branch whose tip is not a snapshot. If the branch is only the default, the
// user may have meant another one.
func (s *Store) foreign(err error) error {
	err = fmt.Errorf("read branch %s of %s: %w: %w", s.options.Branch, s, ErrForeign, err)
	if s.named || len(s.last.tags) > 0 {
		return err
	}
	return process.WithHint(err, "the URL names no branch: add ?branch=NAME; "+s.branchesAre())
}

func (s *Store) branchesAre() string { return "the branches are " + strings.Join(s.branches, ", ") }

// load fetches and reads the snapshot of a commit.
func (s *Store) load(ctx context.Context, commit plumbing.Hash) (snapshots.Snapshot, blobs, error) {
	r, err := s.open(ctx, commit)
	if err != nil {
		return snapshots.Snapshot{}, nil, err
	}
	snapshot, files, err := r.snapshot()
	return snapshot, files, s.blameCache(err)
}

// open fetches a commit, which must have an accepted signature if signatures are verified.
func (s *Store) open(ctx context.Context, commit plumbing.Hash) (reader, error) {
	r, err := s.openAny(ctx, commit)
	if err != nil {
		return reader{}, err
	}
	return r, s.vouch(r)
}

// openAny fetches a commit and does not look at its signature.
func (s *Store) openAny(ctx context.Context, commit plumbing.Hash) (reader, error) {
	if err := s.cache.ensure(ctx, s.remote, commit); err != nil {
		return reader{}, err
	}
	r, err := newReader(s.cache.storage, commit)
	return r, s.blameCache(err)
}

// blameCache drops the cache if a fetched commit cannot be read. Git's hashes vouch for what was
// fetched. So unless the commit itself is wrong, the copy in the cache is damaged, and the next try
// fetches another.
func (s *Store) blameCache(err error) error {
	if err == nil || isCorrupt(err) || errors.Is(err, errNoFile) {
		return err
	}
	s.cache.drop()
	return again(err)
}
