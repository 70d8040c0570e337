package gitstore

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// newKey makes a key with ssh-keygen. It returns its file, and the line with the public half.
func newKey(t *testing.T, kind string) (path, public string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", path).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	data, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return path, strings.TrimSpace(string(data))
}

// signers writes a list of allowed signers, from pairs of a name and the line of a key.
func signers(t *testing.T, path string, pairs ...string) {
	t.Helper()
	var text strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		text.WriteString(pairs[i] + " " + pairs[i+1] + "\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// signing is a repository with a key that signs, and a list that allows it.
type signing struct {
	repository
	key, public, list string
}

func newSigning(t *testing.T) signing {
	t.Helper()
	s := signing{repository: newRepository(t)}
	s.key, s.public = newKey(t, "ed25519")
	s.list = filepath.Join(t.TempDir(), "signers")
	signers(t, s.list, "compiler", s.public)
	return s
}

// signs are options for signing and verifying.
func (s signing) signs(o *Options) {
	o.Key, o.Allowed = signature.Key{File: s.key}, signature.Allowed{SignersFile: s.list}
}

// reads are options for only verifying.
func (s signing) reads(o *Options) { o.Allowed = signature.Allowed{SignersFile: s.list} }

// amend signs the commit of a revision again, like git commit --amend -S, and returns the new commit.
func (s signing) amend(t *testing.T, revision, key string) string {
	t.Helper()
	args := []string{"commit-tree", "-m", "by hand", revision + "^{tree}"}
	for _, parent := range strings.Fields(s.git(t, "rev-list", "--parents", "-n1", revision))[1:] {
		args = append(args, "-p", parent)
	}
	if key != "" {
		args = append([]string{"-c", "gpg.format=ssh", "-c", "user.signingKey=" + key}, append(args, "-S")...)
	}
	return s.git(t, args...)
}

func TestContractSigned(t *testing.T) {
	t.Parallel()
	storetest.RunSome(t, func(t *testing.T) storetest.Backend {
		t.Helper()
		s := newSigning(t)
		return s.backend(t, s.signs)
	}, "what is published is read", "the same content twice is one snapshot", "the channel is kept",
		"writers that race lose nothing", "channel edits that race lose nothing", "a publish that is killed is there or not")
}

// git accepts our signatures, and the same commit has the same signature everywhere.
func TestGitVerifiesWhatWeSign(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ed25519", "ecdsa"} {
		var commits []string
		key, public := newKey(t, kind)
		for range 2 {
			s := newSigning(t)
			s.key, s.public = key, public
			signers(t, s.list, "compiler", public)
			store := s.open(t, s.signs)
			publish(t, store, storetest.Draft("a"))
			publish(t, s.open(t, s.signs), storetest.Draft("b"))
			err := store.UpdateChannel(t.Context(), "pause", time.Unix(1e9, 0), func(c *channel.Channel) error {
				*c = c.Paused(channel.Pause{By: "ann"})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, revision := range []string{"edge", "edge~1", "edge-channel"} {
				s.git(t, "-c", "gpg.ssh.allowedSignersFile="+s.list, "verify-commit", revision)
			}
			if got := s.git(t, "-c", "gpg.ssh.allowedSignersFile="+s.list, "log", "-1", "--format=%G? %GS", "edge"); got != "G compiler" {
				t.Errorf("git log says %q", got)
			}
			if got := s.git(t, "fsck", "--strict"); got != "" {
				t.Errorf("git fsck: %s", got)
			}
			commits = append(commits, s.git(t, "rev-parse", "edge", "edge-channel"))
		}
		if commits[0] != commits[1] {
			t.Errorf("%s: commits %q", kind, commits)
		}
	}
}

// A snapshot without an accepted signature is listed, and never returned. The one before it is.
func TestSnapshotsOfStrangers(t *testing.T) {
	t.Parallel()
	stranger, strange := newKey(t, "ed25519")
	for name, test := range map[string]struct{ key, want string }{
		"nobody":   {"", "it has no signature"},
		"stranger": {stranger, "is not among the allowed signers"},
	} {
		s := newSigning(t)
		writer := s.open(t, s.signs)
		good := publish(t, writer, storetest.Draft("a"))
		bad := publish(t, writer, storetest.Draft("b"))
		was := s.git(t, "rev-parse", "edge")
		forged := s.amend(t, "edge", test.key)
		s.git(t, "update-ref", "refs/heads/edge", forged)
		s.git(t, "update-ref", "refs/tags/edge/"+bad.String(), forged)
		reader := s.open(t, s.reads)
		if v, err := reader.View(t.Context()); err != nil || v.Head() != bad {
			t.Errorf("%s: view %v, %v", name, v.IDs, err)
		}
		_, err := reader.Get(t.Context(), bad)
		want := "commit " + forged[:12] + " of somebody <some@body> is not signed by an allowed signer: "
		if !errors.Is(err, snapshots.ErrUntrusted) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: get: %v", name, err)
		}
		if _, err := reader.Manifest(t.Context(), bad); !errors.Is(err, snapshots.ErrUntrusted) {
			t.Errorf("%s: manifest: %v", name, err)
		}
		if _, err := reader.Get(t.Context(), good); err != nil {
			t.Errorf("%s: get the one before: %v", name, err)
		}
		if sig, err := reader.Signature(t.Context(), bad); err != nil || sig.State != signature.StateRefused || sig.Commit != forged || !strings.Contains(sig.Error, test.want) {
			t.Errorf("%s: signature %+v, %v", name, sig, err)
		}
		// Writers that verify do not publish after it, although its content is right.
		for _, backend := range []string{"b", "c"} {
			if id, published, err := s.open(t, s.signs).Publish(t.Context(), storetest.Draft(backend)); !errors.Is(err, snapshots.ErrUntrusted) {
				t.Errorf("%s: publish: %s, %v, %v", name, id, published, err)
			}
		}
		if test.key != "" {
			signers(t, s.list, "compiler", s.public, "stranger", strange)
			if _, err := reader.Get(t.Context(), bad); err != nil {
				t.Errorf("of a stranger who was introduced: %v", err)
			}
		}
		s.git(t, "update-ref", "refs/heads/edge", was)
		s.git(t, "update-ref", "refs/tags/edge/"+bad.String(), was)
		publish(t, s.open(t, s.signs), storetest.Draft("c"))
	}
}

// A foreign snapshot is removed by setting the branch back, and everything goes on without a restart. If an
// accepted snapshot is removed that way, that is a rewind.
func TestStrangersAreTakenBack(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	good := publish(t, s.open(t, s.signs), storetest.Draft("a"))
	reader, writer := s.open(t, s.reads), s.open(t, s.signs)
	remove := func(id snapshots.ID) {
		s.git(t, "update-ref", "refs/heads/edge", "refs/tags/edge/"+good.String())
		s.git(t, "update-ref", "-d", "refs/tags/edge/"+id.String())
	}
	bad := publish(t, s.open(t), storetest.Draft("b"))
	if v, err := reader.View(t.Context()); err != nil || v.Head() != bad {
		t.Fatalf("view %v, %v", v.IDs, err)
	}
	if _, _, err := writer.Publish(t.Context(), storetest.Draft("c")); !errors.Is(err, snapshots.ErrUntrusted) {
		t.Fatal(err)
	}
	remove(bad)
	if v, err := reader.View(t.Context()); err != nil || v.Head() != good {
		t.Errorf("view %v, %v", v.IDs, err)
	}
	next := publish(t, writer, storetest.Draft("c"))
	if _, err := reader.View(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Get(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.View(t.Context()); err != nil {
		t.Fatal(err)
	}
	remove(next)
	for name, store := range map[string]*Store{"reader": reader, "writer": writer} {
		if v, err := store.View(t.Context()); !errors.Is(err, ErrRewound) {
			t.Errorf("%s: view %v, %v", name, v.IDs, err)
		}
	}
}

// When a key leaves the list, everything that it signed is refused, also what was fetched before.
func TestKeysThatAreTakenAway(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	store := s.open(t, s.signs)
	id := publish(t, store, storetest.Draft("a"))
	if _, err := store.Get(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	next, public := newKey(t, "ed25519")
	signers(t, s.list, "compiler", public)
	if _, err := store.Get(t.Context(), id); !errors.Is(err, snapshots.ErrUntrusted) {
		t.Errorf("get: %v", err)
	}
	if err := os.Remove(s.list); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), id); !errors.Is(err, os.ErrNotExist) || errors.Is(err, snapshots.ErrUntrusted) {
		t.Errorf("get without a list: %v", err)
	}
	// With a time in the list, only later signatures are refused.
	signers(t, s.list, `compiler valid-before="20260301120000Z"`, s.public, "compiler", public)
	if _, err := store.Get(t.Context(), id); err != nil {
		t.Errorf("get what is older: %v", err)
	}
	later := storetest.Draft("b")
	later.Time = later.Time.Add(time.Hour)
	if _, _, err := store.Publish(t.Context(), later); !errors.Is(err, snapshots.ErrUntrusted) {
		t.Errorf("publish with the old key: %v", err)
	}
	publish(t, s.open(t, s.signs, func(o *Options) { o.Key.File = next }), later)
}

// Nothing is published with a key that cannot be used, or that is not allowed.
func TestNothingUnsignedIsPublished(t *testing.T) {
	t.Parallel()
	stranger, _ := newKey(t, "ed25519")
	s := newSigning(t)
	publish(t, s.open(t, s.signs), storetest.Draft("a"))
	before := s.git(t, "for-each-ref")
	for name, test := range map[string]struct {
		change func(*Options)
		want   error
		hint   string
	}{
		"no file":    {func(o *Options) { o.Key.File += "-missing" }, signature.ErrNoKey, ""},
		"public key": {func(o *Options) { o.Key.File += ".pub" }, signature.ErrNoKey, "name the file with the private key"},
		"no key":     {func(o *Options) { o.Key = signature.Key{} }, snapshots.ErrUntrusted, "--signing-key"},
		"a stranger": {func(o *Options) { o.Key.File = stranger }, snapshots.ErrUntrusted, ""},
	} {
		store := s.open(t, s.signs, test.change)
		_, _, err := store.Publish(t.Context(), storetest.Draft("b"))
		if !errors.Is(err, test.want) || !strings.Contains(process.Hint(err), test.hint) || strings.Contains(err.Error(), "tries") {
			t.Errorf("%s: publish: %v, hint %q", name, err, process.Hint(err))
		}
		err = store.UpdateChannel(t.Context(), "pause", time.Unix(1e9, 0), func(c *channel.Channel) error {
			*c = c.Paused(channel.Pause{})
			return nil
		})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: update channel: %v", name, err)
		}
	}
	if after := s.git(t, "for-each-ref"); after != before {
		t.Errorf("the repository was\n%s\nand is\n%s", before, after)
	}
}

// The channel needs an accepted signature too. Without one, it is not followed.
func TestChannelOfStrangers(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	store := s.open(t, s.signs)
	publish(t, store, storetest.Draft("a"))
	pause := func(by string) func(c *channel.Channel) error {
		return func(c *channel.Channel) error {
			*c = c.Paused(channel.Pause{By: by})
			return nil
		}
	}
	if err := store.UpdateChannel(t.Context(), "pause", time.Unix(1e9, 0), pause("ann")); err != nil {
		t.Fatal(err)
	}
	if v, err := s.open(t, s.reads).View(t.Context()); err != nil || v.Channel.Spec.Pause.By != "ann" {
		t.Fatalf("view %+v, %v", v, err)
	}
	s.git(t, "update-ref", "refs/heads/edge-channel", s.commitFile(t, "edge-channel", "README.md", "how to pin"))
	if v, err := store.View(t.Context()); !errors.Is(err, snapshots.ErrUntrusted) || !strings.Contains(err.Error(), "read branch edge-channel") {
		t.Errorf("view %+v, %v", v, err)
	}
	if err := store.UpdateChannel(t.Context(), "pause", time.Unix(1e9, 0), pause("bob")); !errors.Is(err, snapshots.ErrUntrusted) {
		t.Errorf("update: %v", err)
	}
	if ids, err := store.IDs(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("ids %v, %v", ids, err)
	}
	// An allowed signer accepts it by signing it again.
	person, public := newKey(t, "ed25519")
	signers(t, s.list, "compiler", s.public, "carol", public)
	s.git(t, "update-ref", "refs/heads/edge-channel", s.amend(t, "edge-channel", person))
	if v, err := store.View(t.Context()); err != nil || v.Channel.Spec.Pause.By != "ann" {
		t.Errorf("view %+v, %v", v, err)
	}
}

// After the key was changed in a hurry, somebody with the new one signs the channel as it is. So does a command that finds
// nothing to change, since nobody accepts what it found. It is done once.
func TestChannelIsSignedAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSigning(t)
			store := s.open(t, s.signs)
			publish(t, store, storetest.Draft("a"))
			pause := func(c *channel.Channel) error {
				*c = c.Paused(channel.Pause{By: "ann"})
				return nil
			}
			if err := store.UpdateChannel(t.Context(), "pause", time.Unix(1e9, 0), pause); err != nil {
				t.Fatal(err)
			}
			key, public := newKey(t, kind)
			signers(t, s.list, "compiler", public)
			if _, err := s.open(t, s.reads).View(t.Context()); !errors.Is(err, snapshots.ErrUntrusted) || !strings.Contains(process.Hint(err), "pusher sign") {
				t.Fatalf("with the list of the new key: %v", err)
			}
			fresh := s.open(t, func(o *Options) { o.Key = signature.Key{File: key} })
			for i := range 3 {
				if err := fresh.UpdateChannel(t.Context(), "sign", time.Unix(1e9+int64(i), 0), pause); err != nil {
					t.Fatal(err)
				}
			}
			if v, err := s.open(t, s.reads).View(t.Context()); err != nil || v.Channel.Spec.Pause.By != "ann" {
				t.Errorf("view %+v, %v", v, err)
			}
			if n := s.git(t, "rev-list", "--count", "edge-channel"); n != "2" {
				t.Errorf("the channel has %s commits", n)
			}
		})
	}
}

func TestWhatIsSaidOfSignatures(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	unsigned := publish(t, s.open(t), storetest.Draft("a"))
	signed := publish(t, s.open(t, func(o *Options) { o.Key.File = s.key }), storetest.Draft("b"))
	for _, test := range []struct {
		id          snapshots.ID
		change      func(*Options)
		state, name string
	}{
		{unsigned, func(*Options) {}, signature.StateNone, ""},
		{signed, func(*Options) {}, signature.StateUnverified, ""},
		{unsigned, s.reads, signature.StateRefused, ""},
		{signed, s.reads, signature.StateAllowed, "compiler"},
	} {
		sig, err := s.open(t, test.change).Signature(t.Context(), test.id)
		if err != nil || sig.State != test.state || sig.Name != test.name || (sig.Error != "") != (test.state == signature.StateRefused) {
			t.Errorf("%s: %+v, %v", test.id, sig, err)
		}
		if test.id == signed && (sig.Format != "ssh" || !strings.HasPrefix(sig.Key, "SHA256:")) {
			t.Errorf("%s: %+v", test.id, sig)
		}
	}
	if _, err := s.open(t).Signature(t.Context(), id(9, "f")); !errors.Is(err, snapshots.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
}

// Who may push and has no key cannot have somebody who writes to the channel sign a snapshot: it would be among the
// files beside the channel, which are kept.
func TestNoSnapshotIsSignedWithTheChannel(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	publish(t, s.open(t, s.signs), storetest.Draft("a"))
	verb := func(paused bool) {
		t.Helper()
		store := s.open(t, func(o *Options) { o.Key = signature.Key{File: s.key} })
		err := store.UpdateChannel(t.Context(), "pause", time.Unix(1e9, 0), func(c *channel.Channel) error {
			if *c = c.Resumed(); paused {
				*c = c.Paused(channel.Pause{By: "ann"})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	verb(true)
	verb(false)
	resumed := s.git(t, "show", "edge-channel:channel.yaml") + "\n"
	verb(true)
	d := storetest.Draft("of a stranger")
	d.Files = append(d.Files, snapshots.File{Path: channelFile, Content: []byte(resumed)})
	forged := d.Number(2, snapshots.ID{})
	text, err := forged.Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	commit := s.commitFile(t, "edge-channel", snapshots.ManifestFile, string(text))
	for _, f := range forged.Files {
		if f.Path == channelFile {
			continue
		}
		s.git(t, "update-ref", "refs/heads/edge-channel", commit)
		commit = s.commitFile(t, "edge-channel", f.Path, string(f.Content))
	}
	s.git(t, "update-ref", "refs/heads/edge-channel", commit)
	verb(false)
	s.git(t, "update-ref", "refs/heads/edge", "edge-channel")
	if got, err := s.open(t, s.reads).Get(t.Context(), forged.ID()); err == nil {
		t.Errorf("a stranger's snapshot is read as signed: %s", got.ID())
	}
}
