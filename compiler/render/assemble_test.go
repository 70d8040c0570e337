package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Masterminds/sprig/v3"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

// No text becomes a line of its own, whatever a template does with it.
func TestVerbatimTakesLinesOnly(t *testing.T) {
	t.Parallel()
	line, err := policy.NewLine("http-request deny if { path '/a # b' }")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := verbatim(line); err != nil || string(text) != line.Text() {
		t.Errorf("%q, %v", text, err)
	}
	for _, v := range []any{"http-request deny", Text("http-request deny"), policy.Duration("1s"), policy.Line{}, &line, nil, []policy.Line{line}} {
		if text, err := verbatim(v); err == nil {
			t.Errorf("%T %v was written as %q", v, v, text)
		}
	}
	if text, err := checkConfig(line); err == nil {
		t.Errorf("a line was written without verbatim: %q", text)
	}
}

// A name that sprig does not know would give a nil function.
func TestHermeticFunctionsExist(t *testing.T) {
	t.Parallel()
	all := sprig.TxtFuncMap()
	for name := range strings.FieldsSeq(hermetic) {
		if all[name] == nil {
			t.Errorf("sprig has no function %s", name)
		}
	}
}

// Hosts share a line of a crt-list only if all of the line is the same for them.
func TestAlike(t *testing.T) {
	t.Parallel()
	asks := func(authority string, required bool) *routing.ClientCheck {
		return &routing.ClientCheck{Authority: authority, Required: required}
	}
	rsa, both, turned := []string{"rsa.pem"}, []string{"ec.pem", "rsa.pem"}, []string{"rsa.pem", "ec.pem"}
	names := []routing.ServerName{
		{Certificates: rsa},
		{Host: "*.a.example", Certificates: rsa, Except: []string{"b.a.example"}},
		{Host: "b.example", Certificates: rsa},
		{Host: "c.example", Certificates: both},
		{Host: "d.example", Certificates: rsa, Clients: asks("ca.pem", true)},
		{Host: "e.example", Certificates: rsa, Clients: asks("ca.pem", true)},
		{Host: "f.example", Certificates: rsa, Clients: asks("ca.pem", false)},
		{Host: "g.example", Certificates: rsa, Clients: asks("other.pem", true)},
		{Host: "h.example", Certificates: turned},
		{Host: "i.example", Clients: asks("ca.pem", true)},
		{Host: "*.j.example", Certificates: rsa, Except: []string{"b.a.example"}},
		{Host: "k.example", Certificates: both},
		{Certificates: rsa},
		{Host: "*.l.example", Certificates: rsa},
	}
	for i := range 2*mostAlike - 1 {
		names = append(names, routing.ServerName{Host: fmt.Sprintf("m%d.example", i), Clients: asks("ca.pem", true)})
	}
	var got []string
	for _, group := range alike(names) {
		if len(group) == mostAlike {
			group = group[:2]
		}
		var hosts []string
		for _, name := range group {
			hosts = append(hosts, name.Host)
		}
		got = append(got, strings.Join(hosts, "+"))
	}
	want := " *.a.example b.example+*.l.example c.example+k.example d.example+e.example f.example g.example h.example i.example+m0.example *.j.example  m49.example+m50.example"
	if got := strings.Join(got, " "); got != want {
		t.Errorf("the groups are\n%s\nwant\n%s", got, want)
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]Text{
		"*": "*:80", "10.0.0.1": "10.0.0.1:80", "::1": "[::1]:80", "::": "[::]:80 v4v6", "${POD_IP}": `"${POD_IP}:80"`,
	} {
		if got, err := listen(address, 80); got != want || err != nil {
			t.Errorf("listen %s = %s, %v, want %s", address, got, err, want)
		}
	}
}

// An artifact shares with the one before what neither had to be written again for: of lines that are the same, there is one
// origin, and of equal hosts one list.
func TestArtifactsShareWhatIsTheSame(t *testing.T) {
	t.Parallel()
	shipped, err := Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, wrong := Parse(shipped)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	const backends, changed = 50, 17
	input := func(memo *Memo, weight int) Input {
		memo.Begin()
		in := Input{Config: config.Default(), Memo: memo}
		for i := range backends {
			from := []routing.Origin{{Object: diag.Object{Kind: "Ingress", Namespace: "shop", Name: fmt.Sprint("web", i)}}}
			service := snapshots.ServicePort{Namespace: "shop", Service: fmt.Sprint("web", i), Port: "http"}
			b := routing.Backend{Name: fmt.Sprintf("shop_web%02d_http", i), Origins: from, Targets: []routing.Target{{Service: service, Weight: 100}}}
			if i == changed {
				b.Targets[0].Weight = weight
			}
			in.Model.Backends = append(in.Model.Backends, b)
			match := routing.Match{PathMatch: routing.PathMatch{Type: routing.Prefix}}
			in.Model.Hosts = append(in.Model.Hosts, routing.Host{Name: fmt.Sprintf("web%02d.example", i), Origin: from[0], Routes: []routing.Route{{Match: match, Backend: b.Name, Origin: from[0]}}})
		}
		return in
	}
	memo := NewMemo()
	first, _ := set.Render(input(memo, 100))
	in := input(memo, 50)
	second, _ := set.Render(in)
	for file, want := range map[string]int{snapshots.ConfigFile: 2 * (backends - 1), "maps/host.map": backends, "maps/prefix.map": backends} {
		shared := 0
		for i, origin := range second.Origins[file] {
			if i < len(first.Origins[file]) && first.Origins[file][i] == origin {
				shared++
			}
		}
		if shared < want {
			t.Errorf("%d of %d lines of %s share an origin, want %d", shared, len(second.Origins[file]), file, want)
		}
	}
	if &memo.maps.of.Hosts[0] != &in.Model.Hosts[0] {
		t.Error("the hosts of the first rendering are held beside the equal ones of the second")
	}
}
