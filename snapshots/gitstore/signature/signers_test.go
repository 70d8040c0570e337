package signature

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

func TestParseSigners(t *testing.T) {
	t.Parallel()
	_, key := newSSH(t, "ed25519", "")
	for name, line := range map[string]string{
		"plain":            "ann@example.com " + key,
		"a comment":        "ann@example.com " + key + " ann's laptop",
		"several":          "ann,bob,!eve " + key,
		"quoted":           `"Ann and Bob" ` + key,
		"tabs":             "ann\t" + strings.ReplaceAll(key, " ", "\t"),
		"an option":        `ann namespaces="git" ` + key,
		"all options":      `ann cert-authority,namespaces="git,file",valid-after="20260101Z",valid-before="202612312359Z" ` + key,
		"in capitals":      `ann CERT-Authority,Namespaces="git" ` + key,
		"seconds":          `ann valid-after="20260101000000Z" ` + key,
		"in local time":    `ann valid-after="20260101" ` + key,
		"between comments": "# keys\n\n  ann " + key + "\n#",
	} {
		if list, err := parseSigners("signers", line); err != nil || len(list) != 1 {
			t.Errorf("%s: %d signers, %v", name, len(list), err)
		}
	}
	for name, test := range map[string]struct{ line, want string }{
		"nothing":          {"", "signers: it allows nobody"},
		"comments alone":   {"# nobody\n", "signers: it allows nobody"},
		"no key":           {"ann", "signers:1: it has no key"},
		"no principal":     {key, "signers:1: it has no key that can be read"},
		"half a key":       {"ann " + key[:30], "signers:1: it has no key that can be read"},
		"at its line":      {"# keys\nann " + key + "\nbob\n", "signers:3: "},
		"open quote":       {`"ann ` + key, "signers:1: its principals have no closing quote"},
		"empty quotes":     {`"" ` + key, "signers:1: its principals have no closing quote"},
		"unknown option":   {`ann no-touch-required ` + key, "option no-touch-required is not known"},
		"option twice":     {`ann namespaces="git",namespaces="file" ` + key, "option namespaces is there twice"},
		"option no value":  {`ann namespaces ` + key, "option namespaces: write it as"},
		"option empty":     {`ann namespaces="" ` + key, "option namespaces: write it as"},
		"option unquoted":  {`ann valid-after=20260101 ` + key, "option valid-after: write it as"},
		"value of a flag":  {`ann cert-authority="yes" ` + key, "option cert-authority: write it as"},
		"no time":          {`ann valid-after="tomorrow" ` + key, `"tomorrow" is no time such as`},
		"no month":         {`ann valid-after="20261301Z" ` + key, `"20261301Z" is no time such as`},
		"never valid":      {`ann valid-after="20260201Z",valid-before="20260101Z" ` + key, "valid-before is not after valid-after"},
		"a private key":    {"ann -----BEGIN OPENSSH PRIVATE KEY-----", "signers:1: it has no key that can be read"},
		"a key of the ssh": {key + " " + key, "signers:1: "},
	} {
		if list, err := parseSigners("signers", test.line); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %d signers, %v", name, len(list), err)
		}
	}
}

func TestMatchList(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		list, word string
		want       bool
	}{
		{"git", "git", true},
		{"git", "gitx", false},
		{"file,git", "git", true},
		{"*", "git", true},
		{"g?t", "git", true},
		{"g?t", "gt", false},
		{"*@example.com", "ann@example.com", true},
		{"*@example.com", "ann@example.com.evil", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-b-b-d", false},
		{"*,!eve@*", "eve@example.com", false},
		{"!eve@*,*", "ann@example.com", true},
		{"!eve", "ann", false},
		{"Ann", "ann", false},
	} {
		if got := matchList(test.list, test.word); got != test.want {
			t.Errorf("%s matches %s: %v", test.list, test.word, got)
		}
	}
}

// The options of a line apply to each signature, at the time of the commit.
func TestOptionsHold(t *testing.T) {
	t.Parallel()
	private, public := newSSH(t, "ed25519", "")
	made := signed(t, Key{File: file(t, "key", private)}, noon)
	for options, want := range map[string]string{
		``:                                         "",
		`namespaces="git"`:                         "",
		`namespaces="file,g*"`:                     "",
		`namespaces="file"`:                        "ann may sign in the namespaces file",
		`namespaces="*,!git"`:                      "ann may sign in the namespaces",
		`valid-after="202603011200Z"`:              "",
		`valid-after="202603011201Z"`:              "valid from 2026-03-01T12:01:00Z, and the commit is of 2026-03-01T12:00:00Z",
		`valid-before="202603011200Z"`:             "",
		`valid-before="20260301Z"`:                 "valid until 2026-03-01T00:00:00Z, and the commit is of 2026-03-01T12:00:00Z",
		`valid-after="19990101Z",namespaces="git"`: "",
		`cert-authority`:                           "is not among the allowed signers",
	} {
		_, err := Allowed{SignersFile: file(t, "signers", []byte("ann "+options+" "+public+"\n"))}.Verify(made, noon)
		if _, refused := errors.AsType[RefusedError](err); refused != (want != "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", options, err)
		}
	}
	// One line that accepts is enough.
	both := "ann valid-before=\"20200101Z\" " + public + "\nann2 " + public + "\n"
	if by, err := (Allowed{SignersFile: file(t, "signers", []byte(both))}).Verify(made, noon); err != nil || by.Name != "ann2" {
		t.Errorf("by %+v, %v", by, err)
	}
}

// authority signs certificates.
type authority struct {
	t *testing.T
	ssh.Signer
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return authority{t, s}
}

func (a authority) public() string { return string(ssh.MarshalAuthorizedKey(a.PublicKey())) }

// commit returns a commit that is signed with a certificate of the authority. The certificate is for
// bob@example.com and an hour; change can modify it.
func (a authority) commit(change func(*ssh.Certificate)) []byte {
	a.t.Helper()
	key := newAuthority(a.t) // the key of a person
	c := &ssh.Certificate{
		Key: key.PublicKey(), CertType: ssh.UserCert, KeyId: "bob", ValidPrincipals: []string{"bob@example.com"},
		ValidAfter: uint64(noon.Add(-time.Minute).Unix()), ValidBefore: uint64(noon.Add(time.Hour).Unix()),
	}
	change(c)
	if err := c.SignCert(rand.Reader, a.Signer); err != nil {
		a.t.Fatal(err)
	}
	signer, err := ssh.NewCertSigner(c, key.Signer)
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := sshsig.SignWithRand(strings.NewReader(commit), nil, signer, sshsig.HashSHA512, forGit.namespace)
	if err != nil {
		a.t.Fatal(err)
	}
	return withSignature(string(sshsig.Armor(made)))
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	allowed := Allowed{SignersFile: file(t, "signers", []byte("*@example.com cert-authority "+ca.public()))}
	for name, test := range map[string]struct {
		change func(*ssh.Certificate)
		want   string
	}{
		"good":             {func(*ssh.Certificate) {}, ""},
		"one of two":       {func(c *ssh.Certificate) { c.ValidPrincipals = []string{"bob", "bob@example.com"} }, ""},
		"somebody else":    {func(c *ssh.Certificate) { c.ValidPrincipals = []string{"bob@example.org"} }, `for ["bob@example.org"], and not for any of *@example.com`},
		"of nobody":        {func(c *ssh.Certificate) { c.ValidPrincipals = nil }, "and not for any of"},
		"expired":          {func(c *ssh.Certificate) { c.ValidBefore = uint64(noon.Unix()) }, "cert has expired"},
		"not yet valid":    {func(c *ssh.Certificate) { c.ValidAfter = uint64(noon.Unix() + 1) }, "cert is not yet valid"},
		"of a host":        {func(c *ssh.Certificate) { c.CertType = ssh.HostCert }, "is one of a host"},
		"with a condition": {func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"verify-required": ""} }, "unsupported critical option"},
	} {
		by, err := allowed.Verify(ca.commit(test.change), noon)
		if (err != nil) != (test.want != "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && by.Name != "bob@example.com" {
			t.Errorf("%s: by %+v", name, by)
		}
	}
	// A certificate of another authority is refused. If the key of an authority is listed as a signer, that
	// accepts no certificates.
	made := newAuthority(t).commit(func(*ssh.Certificate) {})
	if by, err := allowed.Verify(made, noon); err == nil {
		t.Errorf("another authority: by %+v", by)
	}
	plain := Allowed{SignersFile: file(t, "signers", []byte("*@example.com "+ca.public()))}
	if by, err := plain.Verify(ca.commit(func(*ssh.Certificate) {}), noon); err == nil {
		t.Errorf("an authority that is a signer: by %+v", by)
	}
}

func TestWhatIsNoSignatureOfACommit(t *testing.T) {
	t.Parallel()
	private, public := newSSH(t, "ed25519", "")
	gpgPrivate, gpgPublic := newGPG(t, edDSA, "")
	sshKey, gpgKey := Key{File: file(t, "key", private)}, Key{File: file(t, "key", gpgPrivate)}
	signers, ring := file(t, "signers", []byte("ann "+public+"\n")), file(t, "ring", gpgPublic)
	both := Allowed{SignersFile: signers, KeyringFile: ring}
	bySSH, byGPG := signed(t, sshKey, noon), signed(t, gpgKey, noon)
	for name, test := range map[string]struct {
		allowed Allowed
		commit  string
		want    string
	}{
		"none":               {both, commit, "it has no signature"},
		"of X.509":           {both, string(withSignature("-----BEGIN SIGNED MESSAGE-----\nMIAGCSqG\n-----END SIGNED MESSAGE-----\n")), "neither of SSH nor of OpenPGP"},
		"two":                {both, strings.Replace(string(bySSH), "\ngpgsig ", "\ngpgsig-sha256 x\ngpgsig ", 1), "more than one signature"},
		"in the message":     {both, strings.Replace(commit, "edge r1", "gpgsig -----BEGIN SSH SIGNATURE-----", 1), "it has no signature"},
		"broken armor":       {both, strings.Replace(string(bySSH), "-----END", "-----END OF", 1), "cannot be read"},
		"broken armor (gpg)": {both, string(withSignature(gpgBegin + "\n\nAAAA\n-----END PGP SIGNATURE-----\n")), ""},
		"another namespace":  {both, string(withSignature(inNamespace(t, private, "file"))), `in the namespace "file"`},
		"only gpg is wanted": {Allowed{KeyringFile: ring}, string(bySSH), "no keys of SSH are allowed"},
		"only ssh is wanted": {Allowed{SignersFile: signers}, string(byGPG), "no keys of OpenPGP are allowed"},
	} {
		_, err := test.allowed.Verify([]byte(test.commit), noon)
		if _, refused := errors.AsType[RefusedError](err); !refused || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, made := range [][]byte{bySSH, byGPG} {
		if _, err := both.Verify(made, noon); err != nil {
			t.Error(err)
		}
		payload, _, err := Split(made)
		if err != nil || string(payload) != commit {
			t.Errorf("what is signed: %q, %v", payload, err)
		}
	}
	// An unreadable list is an error of its own, and not a refusal.
	_, err := Allowed{SignersFile: signers + "-missing"}.Verify(bySSH, noon)
	if _, refused := errors.AsType[RefusedError](err); err == nil || refused {
		t.Errorf("without the list: %v", err)
	}
}

func inNamespace(t *testing.T, private []byte, namespace string) string {
	t.Helper()
	key, err := ssh.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	made, err := sshsig.SignWithRand(strings.NewReader(commit), nil, key, sshsig.HashSHA512, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return string(sshsig.Armor(made))
}
