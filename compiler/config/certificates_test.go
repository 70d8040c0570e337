package config

import (
	"strings"
	"testing"

	"filippo.io/age"
)

func TestCheckOfCertificates(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	secret := identity.String()
	const good = "age1vumrp0fh3mgp9lnp58s2l5m7m26jvck2kja0au70075qlzaapgcqgjzpf9"
	for text, want := range map[string]string{
		"":                "",
		"mode: companion": "",
		"mode: exact":     "",
		"mode: sealed, recipients: [" + good + "]": "",
		"mode: latest":               `spec.certificates.mode: "latest" is none of reference, exact, sealed and companion`,
		"mode: sealed":               "spec.certificates.recipients: no recipient is named, so certificates cannot be sealed",
		"recipients: [" + good + "]": "spec.certificates.recipients: are never used: certificates are not sealed",
		"mode: sealed, recipients: [" + good + ", " + secret + "]": "spec.certificates.recipients[1]: is not a recipient of age",
		"mode: sealed, recipients: [alice]":                        "spec.certificates.recipients[0]: is not a recipient of age",
	} {
		_, found := Parse("c.yaml", []byte(head+"spec: {certificates: {"+text+"}}\n"))
		var got []string
		for _, d := range found {
			got = append(got, d.Message)
			if strings.Contains(d.Message, secret) {
				t.Errorf("%s: repeats an identity", text)
			}
			if d.Hint == "" || d.Position.Line != 3 {
				t.Errorf("%s: no hint, or another place", d)
			}
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
