package configmapstore

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// newKey writes a key to a file. It returns the file, and the line with the public half.
func newKey(t *testing.T) (file, public string) {
	t.Helper()
	key, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	line, err := ssh.NewPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return file, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line)))
}

// signed is a place with a signed store.
type signed struct {
	*place
	key, list string
}

func newSigned(t *testing.T) signed {
	t.Helper()
	s := signed{place: newPlace(t), list: filepath.Join(t.TempDir(), "signers")}
	var public string
	s.key, public = newKey(t)
	s.allow("compiler " + public)
	return s
}

// allow replaces the list of allowed signers.
func (s signed) allow(lines ...string) {
	s.Helper()
	if err := os.WriteFile(s.list, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.Fatal(err)
	}
}

// writes are options for signing and verifying, reads for only verifying, and with for only signing.
func (s signed) writes(o *Options) { s.with(s.key)(o); s.reads(o) }
func (s signed) reads(o *Options)  { o.Allowed = signature.Allowed{SignersFile: s.list} }
func (s signed) with(key string) func(*Options) {
	return func(o *Options) { o.Key = signature.Key{File: key} }
}

// A signed store passes the contract of stores.
func TestContractSigned(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		t.Helper()
		b := newSigned(t)
		plain := b.backend()
		plain.Open = func(step func(string) error) storetest.Store {
			s := b.open(b.writes)
			if step != nil {
				s.step = step
			}
			return s
		}
		plain.SetChannel = func(data []byte) {
			b.setChannel(data)
			o := b.object(ChannelName("edge"))
			if err := b.open(b.with(b.key)).signChannel(o, noon); err != nil {
				t.Fatal(err)
			}
			if err := b.client.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		return plain
	})
}

// forge puts a snapshot into the store, with only the permission to create ConfigMaps.
func (p *place) forge(d snapshots.Draft, revision uint64, change func(*corev1.ConfigMap)) snapshots.ID {
	p.Helper()
	next := d.Number(revision, snapshots.ID{})
	files, err := new(compressor).pack(next)
	if err != nil {
		p.Fatal(err)
	}
	made := newDraft("edge", next, files, newAttempt())
	made.manifest.Labels[stateLabel] = stateComplete
	if change != nil {
		change(made.manifest)
	}
	for _, o := range append(made.chunks, made.manifest) {
		o.Namespace = p.namespace
		if err := p.client.Create(p.Context(), o); err != nil {
			p.Fatal(err)
		}
	}
	return next.ID()
}

// A user who may create ConfigMaps puts valid snapshots beside the signed ones. They are not offered, each is
// reported, and they do not prevent publishing.
func TestForgedSnapshotsAreNobodys(t *testing.T) {
	t.Parallel()
	stranger, _ := newKey(t)
	for name, forge := range map[string]struct {
		change func(p signed, o *corev1.ConfigMap)
		want   string
	}{
		"unsigned": {func(signed, *corev1.ConfigMap) {}, "it has no signature"},
		"signed by a stranger": {func(p signed, o *corev1.ConfigMap) {
			p.signAs(o, stranger, "configmap:"+p.namespace+"/edge")
		}, "is not among the allowed signers"},
		"signed for another store": {func(p signed, o *corev1.ConfigMap) {
			p.signAs(o, p.key, "configmap:"+p.namespace+"/staging")
		}, "its signature is for configmap:"},
		"with the signature of another one": {func(p signed, o *corev1.ConfigMap) {
			for key, value := range signedBy(p.object("edge-r000001").Annotations) {
				o.Annotations[key] = value
			}
		}, "its signature is for r000001-"},
		"with words that were changed": {func(p signed, o *corev1.ConfigMap) {
			p.signAs(o, p.key, "configmap:"+p.namespace+"/edge")
			o.Annotations[signedAnnotation] = strings.Replace(o.Annotations[signedAnnotation], "time 2", "time 3", 1)
		}, "it is not what was signed"},
		"with the signature of a commit": {func(p signed, o *corev1.ConfigMap) {
			p.signAs(o, p.key, "configmap:"+p.namespace+"/edge")
			armored, err := signature.Key{File: p.key}.Sign([]byte(o.Annotations[signedAnnotation]), noon)
			if err != nil {
				p.Fatal(err)
			}
			o.Annotations[signatureAnnotation] = armored
		}, `its signature is in the namespace "git"`},
		"staged": {func(_ signed, o *corev1.ConfigMap) { o.Labels[stateLabel] = stateStaged }, ""},
		"delivered": {func(_ signed, o *corev1.ConfigMap) {
			o.Labels[stateLabel], o.Annotations[chunksAnnotation] = stateDelivered, "1"
		}, "it has no signature"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSigned(t)
			s := p.open(p.writes)
			first := publish(t, s, storetest.Draft("a"))
			forged := p.forge(storetest.Draft("evil"), 2, func(o *corev1.ConfigMap) { forge.change(p, o) })
			if naive, err := p.open().View(t.Context()); err != nil || (naive.Head() != forged) != (name == "staged" || name == "delivered") {
				t.Errorf("without signatures the newest is %s, %v", naive.Head(), err)
			}
			reader := p.open(p.reads)
			v, err := reader.View(t.Context())
			if err != nil || !slices.Equal(v.IDs, []snapshots.ID{first}) {
				t.Errorf("the store offers %v, %v", v.IDs, err)
			}
			told := slices.ContainsFunc(v.Refused, func(r channel.Refused) bool { return r.ID == forged && strings.Contains(r.Reason, forge.want) })
			if told != (name != "staged") {
				t.Errorf("refused: %v", v.Refused)
			}
			if _, err := reader.Get(t.Context(), forged); name != "staged" && !errors.Is(err, snapshots.ErrUntrusted) {
				t.Errorf("it is read: %v", err)
			}
			s.patience = time.Hour // no writer is waited for
			if id, published, err := s.Publish(t.Context(), storetest.Draft("a")); id != first || published || err != nil {
				t.Errorf("the same again: %s, %v, %v", id, published, err)
			}
			next := publish(t, s, storetest.Draft("evil")) // the forged snapshot does not count as this one
			if next.Revision != map[bool]uint64{true: 2, false: 3}[name == "staged"] {
				t.Errorf("the next one is %s", next)
			}
			v, err = p.open(p.reads).View(t.Context())
			if err != nil || !slices.Equal(v.IDs, []snapshots.ID{first, next}) {
				t.Errorf("the store offers %v, %v", v.IDs, err)
			}
		})
	}
}

// signAs signs a manifest for a store.
func (s signed) signAs(o *corev1.ConfigMap, key, store string) {
	s.Helper()
	text, err := s.place.open().manifestText(s.Context(), o)
	if err != nil {
		s.Fatal(err)
	}
	m, err := snapshots.ParseManifest(text)
	if err != nil {
		s.Fatal(err)
	}
	by := signing{key: signature.Key{File: key}}
	if err := by.sign(o, stateSnapshot(store, m, text)); err != nil {
		s.Fatal(err)
	}
}

// Forged names and revisions leave room for the next snapshot.
func TestForgedRevisionsLeaveRoom(t *testing.T) {
	t.Parallel()
	p := newSigned(t)
	s := p.open(p.writes)
	publish(t, s, storetest.Draft("a"))
	p.forge(storetest.Draft("evil"), snapshots.MaxRevision, nil)
	p.forge(storetest.Draft("evil"), 7, nil)
	taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "edge-r000008"}}
	if err := p.client.Create(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	if id := publish(t, s, storetest.Draft("b")); id.Revision != 9 {
		t.Errorf("the next one is %s", id)
	}
}

// A snapshot from before there were signatures is published once more. Before that, it causes no problem.
func TestSignaturesAreAskedForLater(t *testing.T) {
	t.Parallel()
	p := newSigned(t)
	old := publish(t, p.open(), storetest.Draft("a"))
	if _, err := p.open(p.reads).View(t.Context()); !errors.Is(err, snapshots.ErrUntrusted) {
		t.Errorf("a channel from before is read: %v", err)
	}
	if err := p.open(p.with(p.key)).UpdateChannel(t.Context(), "sign", noon, func(*channel.Channel) error { return nil }); err != nil {
		t.Fatal(err)
	}
	v, err := p.open(p.reads).View(t.Context())
	d := channel.Want(v, noon)
	if err != nil || !d.Hold || d.Because != channel.BecauseUntrusted || !strings.Contains(d.Message, old.String()[:7]) || !strings.Contains(d.Message, "it has no signature") {
		t.Errorf("%+v, %v", d, err)
	}
	again := publish(t, p.open(p.with(p.key)), storetest.Draft("a")) // also by a compiler that verifies nothing
	if again.Revision != 2 || again.Short != old.Short {
		t.Errorf("it is published as %s", again)
	}
	for _, s := range []*Store{p.open(p.with(p.key)), p.open(p.writes)} {
		if id, published, err := s.Publish(t.Context(), storetest.Draft("a")); id != again || published || err != nil {
			t.Errorf("once more: %s, %v, %v", id, published, err)
		}
	}
	if err := p.open(p.writes).Delete(t.Context(), old); err != nil {
		t.Error(err)
	}
	if chunks := p.objects(partChunk); len(chunks) != 1 {
		t.Errorf("%d chunks are left", len(chunks))
	}
}

// A key can be replaced without a gap: both keys are allowed until nothing needs the signatures of the old one.
// Then those are refused, also by an open store.
func TestKeysAreRotated(t *testing.T) {
	t.Parallel()
	p := newSigned(t)
	oldLine, err := os.ReadFile(p.list)
	if err != nil {
		t.Fatal(err)
	}
	newKeyFile, newLine := newKey(t)
	reader := p.open(p.reads)
	first := publish(t, p.open(p.writes), storetest.Draft("a"))
	second := publish(t, p.open(p.writes), storetest.Draft("b"))
	p.allow(string(oldLine), "compiler "+newLine)
	third := publish(t, p.open(p.reads, p.with(newKeyFile)), storetest.Draft("c"))
	if v, err := reader.View(t.Context()); err != nil || !slices.Equal(v.IDs, []snapshots.ID{first, second, third}) {
		t.Errorf("with both: %v, %v", v.IDs, err)
	}
	p.allow("compiler " + newLine)
	// The channel was signed with the old key, and a person signs it again.
	if _, err := reader.View(t.Context()); !errors.Is(err, snapshots.ErrUntrusted) || !strings.Contains(process.Hint(err), "pusher sign --signing-key") {
		t.Errorf("the channel is read: %v, hint %q", err, process.Hint(err))
	}
	if err := p.open(p.with(newKeyFile)).UpdateChannel(t.Context(), "sign", noon, func(*channel.Channel) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if v, err := reader.View(t.Context()); err != nil || !slices.Equal(v.IDs, []snapshots.ID{third}) || len(v.Refused) != 2 {
		t.Errorf("with the new one: %v, refused %v, %v", v.IDs, v.Refused, err)
	}
	// An unreadable list makes everything an error. It does not count as an empty list.
	p.allow("compiler nonsense")
	if _, err := reader.IDs(t.Context()); err == nil || errors.Is(err, snapshots.ErrUntrusted) {
		t.Errorf("with a list that cannot be read: %v", err)
	}
}

// If signatures are required, nothing is published without a key, or with a key that is not allowed.
func TestNothingIsPublishedUnsigned(t *testing.T) {
	t.Parallel()
	p := newSigned(t)
	stranger, _ := newKey(t)
	for name, s := range map[string]*Store{"no key": p.open(p.reads), "a stranger's": p.open(p.reads, p.with(stranger)), "no file": p.open(p.with("none"))} {
		if _, _, err := s.Publish(t.Context(), storetest.Draft("a")); err == nil {
			t.Errorf("%s: it is published", name)
		}
		if err := s.UpdateChannel(t.Context(), "approve", noon, func(c *channel.Channel) error {
			*c = c.Approve(snapshots.ID{Revision: 1, Short: "0123456789"})
			return nil
		}); err == nil {
			t.Errorf("%s: the channel is written", name)
		}
	}
	if all := append(p.objects(partManifest), p.objects(partChannel)...); len(all) > 0 {
		t.Errorf("there are %d objects", len(all))
	}
}

// A user who may write the channel's ConfigMap, and cannot sign, changes nothing that runs: not by hand, not
// with an earlier signed content, and not by creating a first channel.
func TestChannelIsSigned(t *testing.T) {
	t.Parallel()
	p := newSigned(t)
	s, reader := p.open(p.writes), p.open(p.reads)
	first := publish(t, s, storetest.Draft("a"))
	publish(t, s, storetest.Draft("b"))
	pin := func(id snapshots.ID) func(*channel.Channel) error {
		return func(c *channel.Channel) error {
			c.Spec.Pin = &channel.Pin{Snapshot: id, By: "ann", At: noon}
			return nil
		}
	}
	if err := s.UpdateChannel(t.Context(), "pin", noon, pin(first)); err != nil {
		t.Fatal(err)
	}
	if v, err := reader.View(t.Context()); err != nil || channel.Want(v, noon).ID != first {
		t.Fatalf("pinned: %+v, %v", v.Channel, err)
	}
	pinned := p.object("edge-channel")
	if err := s.UpdateChannel(t.Context(), "unpin", noon, func(c *channel.Channel) error { c.Spec.Pin = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	v, err := reader.View(t.Context())
	if err != nil || v.Channel.Spec.Pin != nil {
		t.Fatalf("unpinned: %+v, %v", v.Channel, err)
	}
	now := p.object("edge-channel")
	write := func(data, annotations map[string]string) {
		t.Helper()
		o := p.object("edge-channel")
		o.Data, o.Annotations = data, annotations
		if err := p.client.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	noted := map[string]string{noteKey: "ask ann"}
	for key, value := range now.Data {
		noted[key] = value
	}
	write(noted, now.Annotations)
	if _, err := reader.View(t.Context()); err != nil {
		t.Errorf("a note is in the way: %v", err)
	}
	write(map[string]string{approvalKey: "false", pinKey: first.String()}, now.Annotations)
	if _, err := reader.View(t.Context()); !errors.Is(err, snapshots.ErrUntrusted) || !strings.Contains(err.Error(), "it is not what was signed") {
		t.Errorf("written by hand: %v", err)
	}
	restarted := p.open(p.reads)
	restarted.Remember(v.Seen)
	write(pinned.Data, pinned.Annotations)
	for _, r := range []*Store{reader, restarted} {
		if _, err := r.View(t.Context()); !errors.Is(err, channel.ErrRewound) || !strings.Contains(err.Error(), "put back") {
			t.Errorf("an old one is put back: %v", err)
		}
	}
	write(now.Data, now.Annotations)
	if _, err := reader.View(t.Context()); err != nil {
		t.Errorf("mended: %v", err)
	}
}

// The channel exists from the first snapshot on, so a user who may create ConfigMaps cannot create it. A
// channel that was removed is not created again.
func TestChannelIsMadeWithTheFirstSnapshot(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	publish(t, p.open(), storetest.Draft("a"))
	err := p.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "edge-channel"}})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("another one is made: %v", err)
	}
	if err := p.client.Delete(t.Context(), p.object("edge-channel")); err != nil {
		t.Fatal(err)
	}
	publish(t, p.open(), storetest.Draft("b"))
	if all := p.objects(partChannel); len(all) > 0 {
		t.Error("it was made again")
	}
}

func TestStatements(t *testing.T) {
	t.Parallel()
	s := statement{signedSnapshot, "configmap:edge/edge", "r000001-0123456789", "sha256:00", noon}
	if got, err := parseStatement(s.String()); err != nil || got != s {
		t.Errorf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"nothing":      "",
		"a line more":  s.String() + "x\n",
		"another time": strings.Replace(s.String(), "Z\n", "+00:00\n", 1),
		"spaces":       strings.Replace(s.String(), "store ", "store  ", 1) + " ",
		"no newline":   strings.TrimSuffix(s.String(), "\n"),
	} {
		if _, err := parseStatement(text); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

func TestRewoundTellsWhatCameAfter(t *testing.T) {
	for name, test := range map[string]struct {
		before, now string
		rewound     bool
	}{
		"nothing seen":         {"", "", false},
		"the first":            {"", "a/7", false},
		"as it was":            {"a/7", "a/7", false},
		"edited":               {"a/7", "a/8", false},
		"edited, more digits":  {"a/9", "a/10", false},
		"edited, no number":    {"a/x", "a/w", false},
		"gone":                 {"a/7", "", true},
		"made again":           {"a/7", "b/8", true},
		"restored with etcd":   {"a/10", "a/9", true},
		"made again, restored": {"a/7", "b/6", true},
	} {
		if why := rewound(test.before, test.now); (why != "") != test.rewound {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// A tool may apply the channel, also with an earlier content. That counts.
func TestChannelsThatAreApplied(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	paused := "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nmetadata: {name: edge}\nspec: {pause: {by: ops}}\n"
	resumed := "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nmetadata: {name: edge}\nspec: {}\n"
	s := p.open()
	var seen channel.Seen
	for _, text := range []string{resumed, paused, resumed, paused} {
		p.setChannel([]byte(text))
		v, err := s.View(t.Context())
		if err != nil || (v.Channel.Spec.Pause != nil) != (text == paused) || v.Seen == seen {
			t.Errorf("applied %q: %+v, %v", text, v.Channel.Spec, err)
		}
		seen = v.Seen
	}
	restarted := p.open()
	seen.Channel = "another/1"
	restarted.Remember(seen)
	if _, err := restarted.View(t.Context()); !errors.Is(err, channel.ErrRewound) {
		t.Errorf("made again: %v", err)
	}
}
