// Package transport has the section tls of the configuration: what clients may negotiate.
package transport

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// TLS says what clients may negotiate with every listener that speaks TLS.
type TLS struct {
	// Policy selects the defaults of the fields below, by Mozilla's guideline: intermediate
	// accepts TLS 1.2 and 1.3 with forward secrecy and authenticated encryption, modern
	// accepts only TLS 1.3.
	Policy Policy `json:"policy"`
	// MinVersion is the oldest accepted version. Versions before 1.2 also need ciphers such
	// as DEFAULT@SECLEVEL=0.
	MinVersion Version `json:"minVersion"`
	// MaxVersion is the newest accepted version.
	MaxVersion Version `json:"maxVersion"`
	// Ciphers are the ciphers of TLS 1.2 and before, by OpenSSL's names, the best first.
	Ciphers []string `json:"ciphers"`
	// CipherSuites are the cipher suites of TLS 1.3, by OpenSSL's names, the best first.
	CipherSuites []string `json:"cipherSuites"`
	// Curves are the groups of the key exchange, by OpenSSL's names, the best first. If
	// empty, they are OpenSSL's own, whose newer versions add groups that withstand quantum
	// computers.
	Curves []string `json:"curves"`
}

// Policy is a set of TLS settings with a name.
type Policy string

// The policies.
const (
	Intermediate Policy = "intermediate"
	Modern       Policy = "modern"
)

// Version is a version of TLS as HAProxy writes it.
type Version string

// The versions, oldest first.
const (
	TLS10 Version = "TLSv1.0"
	TLS11 Version = "TLSv1.1"
	TLS12 Version = "TLSv1.2"
	TLS13 Version = "TLSv1.3"
)

var tlsVersions = []Version{TLS10, TLS11, TLS12, TLS13}

// age orders versions; -1 is none.
func (v Version) age() int { return slices.Index(tlsVersions, v) }

// The settings of the policies.
var (
	intermediateCiphers = []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
		"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
	}
	tls13Suites = []string{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)

// Effective returns the settings with the defaults of the policy, and without those that no
// accepted version can use.
func (t TLS) Effective() TLS {
	least := TLS12
	if t.Policy == Modern {
		least = TLS13
	}
	t.MinVersion = cmp.Or(t.MinVersion, least)
	if len(t.Ciphers) == 0 {
		t.Ciphers = intermediateCiphers
	}
	if len(t.CipherSuites) == 0 {
		t.CipherSuites = tls13Suites
	}
	if !t.speaks12() {
		t.Ciphers = nil
	}
	if !t.Speaks13() {
		t.CipherSuites = nil
	}
	return t
}

// ClientPrefers reports whether the client's order of ciphers counts. If all offered ciphers are good, the
// client knows best which one is fast for it.
func (t TLS) ClientPrefers() bool { return t.Policy == Modern }

// speaks12 reports whether TLS 1.2 or an older version is accepted.
func (t TLS) speaks12() bool { return t.MinVersion.age() < TLS13.age() }

// Speaks13 reports whether TLS 1.3 is accepted.
func (t TLS) Speaks13() bool { return t.MaxVersion == "" || t.MaxVersion == TLS13 }

// tlsName matches the name of a cipher, suite or group. A cipher may also be an instruction
// of OpenSSL, such as !MD5 or @STRENGTH.
var (
	tlsName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	cipherForm = regexp.MustCompile(`^[!+@-]?[A-Za-z0-9][A-Za-z0-9_.+@=-]*$`)
)

// IsCipherName reports whether an element of ciphers is the name of a cipher or of a group
// of ciphers, and not an instruction.
func IsCipherName(s string) bool { return tlsName.MatchString(s) }

// Check finds what is wrong with the fields.
func (t TLS) Check(f field.Errors) {
	if t.Policy != Intermediate && t.Policy != Modern {
		f.At("policy").Add(fmt.Sprintf("%q is neither intermediate nor modern", string(t.Policy)), "use intermediate or modern")
	}
	checkVersion(f.At("minVersion"), t.MinVersion)
	checkVersion(f.At("maxVersion"), t.MaxVersion)
	e := t.Effective()
	if e.MaxVersion != "" && e.MaxVersion.age() < e.MinVersion.age() {
		f.At("maxVersion").Add(fmt.Sprintf("%s is older than %s, the oldest version that is accepted", e.MaxVersion, e.MinVersion), "lower minVersion too")
	}
	checkNames(f.At("ciphers"), t.Ciphers, cipherForm, "use OpenSSL's name, such as ECDHE-RSA-AES128-GCM-SHA256")
	checkNames(f.At("cipherSuites"), t.CipherSuites, tlsName, "use OpenSSL's name, such as TLS_AES_128_GCM_SHA256")
	checkNames(f.At("curves"), t.Curves, tlsName, "use OpenSSL's name, such as X25519")
	if len(t.Ciphers) > 0 && !e.speaks12() {
		f.At("ciphers").Add("are never used: only TLS 1.3 is accepted", "name cipherSuites instead, or lower minVersion")
	}
	if len(t.CipherSuites) > 0 && !e.Speaks13() {
		f.At("cipherSuites").Add("are never used: TLS 1.3 is not accepted", "name ciphers instead, or raise maxVersion")
	}
}

// checkVersion checks a version, which may be left out.
func checkVersion(f field.Errors, v Version) {
	if v != "" && v.age() < 0 {
		f.Add(fmt.Sprintf("%q is not a version of TLS", string(v)), "use TLSv1.0, TLSv1.1, TLSv1.2 or TLSv1.3")
	}
}

// checkNames checks that each element of a list has a form.
func checkNames(f field.Errors, list []string, form *regexp.Regexp, hint string) {
	for i, name := range list {
		if !form.MatchString(name) {
			f.Element(i).Add(fmt.Sprintf("%q is not a name", name), hint)
		}
	}
}
