package snapshots

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// Nothing that prints a draft prints a key.
func TestPrivateContentIsHidden(t *testing.T) {
	t.Parallel()
	d := Draft{Companions: []Companion{{Version: someVersion, Content: Private("secret")}}}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{fmt.Sprint(d), fmt.Sprintf("%+v %#v", d, d), fmt.Sprintf("%x", d.Companions[0].Content), string(text)} {
		if strings.Contains(got, "secret") || strings.Contains(got, "736563") || strings.Contains(got, "115 101") {
			t.Errorf("it shows: %s", got)
		}
	}
}

func TestCompanionsAreChecked(t *testing.T) {
	t.Parallel()
	data, other := pemtest.SelfSigned(t, "a.example", pemtest.ECKey()), pemtest.SelfSigned(t, "a.example", pemtest.ECKey2())
	version, err := pem.Version(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		companions []Companion
		ok         bool
	}{
		"one":          {[]Companion{{version, data}}, true},
		"none":         {nil, false},
		"another":      {[]Companion{{version, other}}, false},
		"twice":        {[]Companion{{version, data}, {version, data}}, false},
		"of no use":    {[]Companion{{version, data}, {someVersion, other}}, false},
		"another name": {[]Companion{{someVersion, data}}, false},
	} {
		d := sampleDraft()
		d.Certificates[0].Mode, d.Certificates[0].Version, d.Companions = ModeCompanion, version, tt.companions
		if err := d.Check(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
