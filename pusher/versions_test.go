package pusher

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// keyPair writes a new Secret, and returns what is in it and its serial number.
func (r *rig) keyPair() (data []byte, serial string) {
	r.t.Helper()
	serial = r.secret(func(crt, key []byte) ([]byte, []byte) {
		data = slices.Concat(crt, key)
		return crt, key
	})
	return data, serial
}

// withoutSecret removes it again.
func (r *rig) withoutSecret() {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.dir, "live", "secret.yaml")); err != nil {
		r.t.Fatal(err)
	}
}

// publishVersion publishes a snapshot that serves a version of a certificate: sealed,
// if there are recipients.
func (r *rig) publishVersion(revision string, data []byte, to ...string) snapshots.ID {
	r.t.Helper()
	version, err := pem.Version(data)
	if err != nil {
		r.t.Fatal(err)
	}
	d := snapshots.Draft{
		Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte(config(revision, tlsConfig))},
			{Path: "maps/host.map", Content: []byte("# none\n")},
			{Path: "files/https.crtlist", Content: []byte("certs/shop_web-tls.pem shop.example.com\n")},
		},
		Certificates: slices.Clone(tlsCertificates), Time: time.Now(),
	}
	d.Certificates[1].Mode, d.Certificates[1].Version = snapshots.ModeExact, version
	if len(to) > 0 {
		recipients, err := sealing.NewRecipients(to)
		if err != nil {
			r.t.Fatal(err)
		}
		sealed, err := recipients.Seal(data)
		if err != nil {
			r.t.Fatal(err)
		}
		d.Certificates[1].Mode, d.Recipients = snapshots.ModeSealed, recipients.Names()
		d.Files = append(d.Files, snapshots.File{Path: "certs/shop_web-tls.pem.age", Content: sealed})
	}
	id, _, err := r.store.Publish(r.t.Context(), d)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// identity writes new identities into the file of the pusher, and returns the
// recipient of the last.
func (r *rig) identity() string {
	r.t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		r.t.Fatal(err)
	}
	r.options.Identity = filepath.Join(r.dir, "identity.txt")
	before, _ := os.ReadFile(r.options.Identity)
	r.write("identity.txt", string(before)+i.String()+"\n")
	return i.Recipient().String()
}

func (r *rig) trouble(about, text string) func(Status) bool {
	return func(s Status) bool {
		return slices.ContainsFunc(s.Troubles, func(t Trouble) bool { return t.About == about && strings.Contains(t.Error, text) })
	}
}

// What is sealed is served without any Secret, and opened in memory only.
func TestSealedCertificateIsServed(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	data, serial := r.keyPair()
	r.withoutSecret()
	id := r.publishVersion("1", data, r.identity())
	r.allRunAfter(id)
	if got := r.served("a", "shop.example.com"); got != serial {
		t.Errorf("a serves %s, not what was sealed", got)
	}
	renewed, next := r.keyPair() // which is another one than is sealed from now on
	_, live := r.keyPair()
	r.allRun(r.publishVersion("1", renewed, r.identity()))
	if got := r.served("a", "shop.example.com"); got != next || got == live {
		t.Errorf("a serves %s, not what was sealed then", got)
	}
	r.kill()
	err := filepath.WalkDir(filepath.Join(r.dir, "state"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "fallback.pem" {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte("PRIVATE KEY")) || bytes.Contains(content, []byte("AGE-SECRET-KEY")) {
			t.Errorf("%s holds a key", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.log.String(), "AGE-SECRET-KEY") || strings.Contains(r.log.String(), "PRIVATE KEY") {
		t.Error("the log holds a key")
	}
}

// Without the identity a snapshot is held, until the file has it. What runs follows
// its endpoints all the same, also after a restart without any identity.
func TestSealedForSomebodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	one, two := echo(t, "one"), echo(t, "two")
	r.endpoints(one)
	first, serial := r.keyPair()
	second, _ := r.keyPair()
	r.withoutSecret()
	id := r.publishVersion("1", first, r.identity())
	r.allRunAfter(id)
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	pushes, next := r.pushes("a"), r.publishVersion("2", second, other.Recipient().String())
	r.until("it is said", r.trouble("certificates", next.String()+" was sealed to "+other.Recipient().String()+": no identity opens it"))
	r.kill()
	r.options.Identity = ""
	r.run()
	r.until("it is said again", r.trouble("certificates", "no file of identities is named with --age-identity"))
	r.endpoints(two)
	eventually(t, "a follows its endpoints", func() bool { return r.answersOnly("a", "two") })
	if got := r.served("a", "shop.example.com"); got != serial || r.pushes("a") != pushes {
		t.Errorf("a serves %s after %d pushes, not what it did", got, r.pushes("a")-pushes)
	}
	r.kill()
	r.identity()
	before, err := os.ReadFile(r.options.Identity)
	if err != nil {
		t.Fatal(err)
	}
	r.run()
	r.until("none of them fits", r.trouble("certificates", "no identity opens it"))
	r.write("identity.txt", string(before)+other.String()+"\n")
	r.allRun(next)
}

// A snapshot that names a version gets no other, whatever its Secret holds: it keeps
// the one that is known, and a snapshot whose version is nowhere is held.
func TestExactVersions(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	first, was := r.keyPair()
	id := r.publishVersion("1", first)
	r.allRunAfter(id)
	second, is := r.keyPair()
	r.until("it is said", r.trouble("certificates", id.String()+" names version"))
	r.until("and what comes of it", r.trouble("certificates", "that one, which is still known, is served on"))
	if got := r.served("a", "shop.example.com"); got != was {
		t.Errorf("a serves %s, not the version that is named", got)
	}
	next := r.publishVersion("2", second)
	r.allRun(next)
	if got := r.served("a", "shop.example.com"); got != is {
		t.Errorf("a serves %s, not the new version", got)
	}
	pushes := r.pushes("a")
	r.kill() // what is remembered is lost
	r.channel(func(c channel.Channel) channel.Channel {
		return c.Pinned(channel.Pin{Snapshot: id, At: time.Now()})
	})
	r.run()
	r.until("the old one is held", r.trouble("certificates", id.String()+" names version"))
	r.until("for no instance gets it", r.trouble("certificates", "it is given to no instance"))
	if got := r.served("a", "shop.example.com"); got != is || r.pushes("a") != pushes {
		t.Errorf("a serves %s after %d pushes", got, r.pushes("a")-pushes)
	}
}
