package signature

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"
)

// tool runs an installed program, and returns its output.
func tool(t *testing.T, stdin []byte, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatal(err)
	}
	t.Logf("%s %s: %v %s%s", program, strings.Join(args, " "), err, out.String(), stderr.String())
	return out.String(), err
}

// keygenAccepts asks ssh-keygen whether an allowed signer signed the commit, as git does.
func keygenAccepts(t *testing.T, signers string, commit []byte, at time.Time) bool {
	t.Helper()
	payload, armored, err := Split(commit)
	if err != nil {
		t.Fatal(err)
	}
	sig, when := file(t, "sig", []byte(armored)), "-Overify-time="+at.Format("20060102150405")+"Z"
	found, err := tool(t, nil, "ssh-keygen", "-Y", "find-principals", "-f", signers, "-s", sig, when)
	if err != nil {
		return false
	}
	for principal := range strings.Lines(found) {
		if _, err := tool(t, payload, "ssh-keygen", "-Y", "verify", "-f", signers, "-I", strings.TrimSpace(principal), "-n", "git", "-s", sig, when); err == nil {
			return true
		}
	}
	return false
}

// ssh-keygen and this package accept the same signatures with the same lists.
func TestAsSSHKeygenDoes(t *testing.T) {
	t.Parallel()
	_, other := newSSH(t, "ed25519", "")
	for _, kind := range []string{"ed25519", "rsa", "ecdsa"} {
		private, public := newSSH(t, kind, "")
		made := signed(t, Key{File: file(t, "key", private)}, noon)
		for line, want := range map[string]bool{
			`ann ` + public:     true,
			`ann ` + other:      false,
			`ann,bob ` + public: true,
			"# keys\n\nbob " + other + "\nann " + public:              true,
			`ann namespaces="git" ` + public:                          true,
			`ann namespaces="file,gi?" ` + public:                     true,
			`ann namespaces="file" ` + public:                         false,
			`ann namespaces="*,!git" ` + public:                       false,
			`ann valid-after="20260301120000Z" ` + public:             true,
			`ann valid-after="20260301120001Z" ` + public:             false,
			`ann valid-before="20260301120000Z" ` + public:            true,
			`ann valid-before="202603011159Z" ` + public:              false,
			`ann valid-before="20260301Z",namespaces="git" ` + public: false,
			`ann cert-authority ` + public:                            false,
			`ann no-such-option ` + public:                            false,
		} {
			agree(t, line, made, want)
		}
	}
}

// The same holds for certificates.
func TestCertificatesAsSSHKeygenDoes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, test := range map[string]struct {
		principals string
		change     func(*ssh.Certificate)
		want       bool
	}{
		"good":          {"*@example.com", func(*ssh.Certificate) {}, true},
		"expired":       {"*@example.com", func(c *ssh.Certificate) { c.ValidBefore = uint64(noon.Unix()) }, false},
		"not yet valid": {"*@example.com", func(c *ssh.Certificate) { c.ValidAfter = uint64(noon.Unix() + 1) }, false},
		"somebody else": {"*@example.org", func(*ssh.Certificate) {}, false},
		"not him":       {"*,!bob@*", func(*ssh.Certificate) {}, false},
		"of nobody":     {"*", func(c *ssh.Certificate) { c.ValidPrincipals = nil }, false},
		"of a host":     {"*", func(c *ssh.Certificate) { c.CertType = ssh.HostCert }, false},
	} {
		t.Log(name)
		agree(t, test.principals+" cert-authority "+ca.public(), ca.commit(test.change), test.want)
	}
	agree(t, "* "+ca.public(), ca.commit(func(*ssh.Certificate) {}), false)
}

func agree(t *testing.T, list string, made []byte, want bool) {
	t.Helper()
	signers := file(t, "signers", []byte(list+"\n"))
	_, err := Allowed{SignersFile: signers}.Verify(made, noon)
	if theirs := keygenAccepts(t, signers, made, noon); (err == nil) != want || theirs != want {
		t.Errorf("%s\nwant %v, ssh-keygen says %v, we say %v", list, want, theirs, err)
	}
}

// gpgHome is a folder with keys for gpg. Its agent ends with the test.
func gpgHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd := exec.Command("gpgconf", "--homedir", home, "--kill", "all")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("gpgconf --kill: %v\n%s", err, out)
		}
	})
	return home
}

// gpg accepts our signatures, and we accept those of gpg, also from a subkey for signatures, but not with
// SHA-1.
func TestAsGPGDoes(t *testing.T) {
	t.Parallel()
	home := gpgHome(t)
	gpg := func(stdin []byte, args ...string) string {
		t.Helper()
		out, err := tool(t, stdin, "gpg", append([]string{"--homedir", home, "--batch", "--no-tty", "--faked-system-time", "20260301T120000!"}, args...)...)
		if err != nil {
			t.Errorf("gpg %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	for _, algorithm := range []packet.PublicKeyAlgorithm{packet.PubKeyAlgoEdDSA, packet.PubKeyAlgoRSA} {
		key := newEntity(t, algorithm)
		gpg(ringOf(t, key), "--import")
		sig, err := keyOf(t, key).Sign([]byte(commit), noon)
		if err != nil {
			t.Fatal(err)
		}
		gpg([]byte(commit), "--verify", file(t, "sig", []byte(sig)), "-")
	}
	parent := newEntity(t, edDSA)
	if err := parent.AddSigningSubkey(&packet.Config{Algorithm: edDSA, Time: func() time.Time { return noon.Add(-time.Hour) }}); err != nil {
		t.Fatal(err)
	}
	secret := armored(t, "PGP PRIVATE KEY BLOCK", func(w io.Writer) error { return parent.SerializePrivateWithoutSigning(w, nil) })
	gpg(secret, "--import")
	user := parent.PrimaryKey.KeyIdString()
	ring := Allowed{KeyringFile: file(t, "ring", []byte(gpg(nil, "--armor", "--export", user)))}
	sub := parent.Subkeys[len(parent.Subkeys)-1].PublicKey
	by, err := ring.Verify(withSignature(gpg([]byte(commit), "--armor", "--detach-sign", "--local-user", user)), noon)
	if err != nil || !strings.HasSuffix(by.Key, sub.KeyIdString()) {
		t.Errorf("by %+v, want %s: %v", by, sub.KeyIdString(), err)
	}
	// We can use a secret key that gpg exported.
	mine := Key{File: filepath.Join(home, "exported")}
	if err := os.WriteFile(mine.File, []byte(gpg(nil, "--armor", "--export-secret-keys", user)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Verify(signed(t, mine, noon), noon); err != nil {
		t.Errorf("with the exported key: %v", err)
	}
	weak := gpg([]byte(commit), "--armor", "--detach-sign", "--digest-algo", "SHA1", "--local-user", user)
	_, err = ring.Verify(withSignature(weak), noon)
	if _, refused := errors.AsType[RefusedError](err); !refused {
		t.Errorf("with SHA-1: %v", err)
	}
}
