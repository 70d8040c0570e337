package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Report is what was found of a fleet.
type Report struct {
	// OK is set where nothing is wrong. Warnings do not count.
	OK        bool       `json:"ok"`
	Instances []Instance `json:"instances"`
}

// Instance is what was found of one instance.
type Instance struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// API and HAProxy are their versions, "" where they were not told.
	API      string    `json:"api,omitempty"`
	HAProxy  string    `json:"haproxy,omitempty"`
	Findings []Finding `json:"findings"`
}

// atOnce is how many instances are looked at at the same time.
const atOnce = 16

// Check looks at all instances of a fleet, each for no longer than the limit.
func Check(ctx context.Context, instances []fleet.Instance, limit time.Duration) Report {
	out := make([]Instance, len(instances))
	slots := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for n, spec := range instances {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			out[n] = checkOne(ctx, spec)
		})
	}
	wait.Wait()
	report := Report{OK: true, Instances: out}
	for n := range out {
		out[n].Findings = append(out[n].Findings, twins(instances, n)...)
		if slices.ContainsFunc(out[n].Findings, func(f Finding) bool { return !f.Warning }) {
			report.OK = false
		}
	}
	return report
}

func checkOne(ctx context.Context, spec fleet.Instance) Instance {
	out := Instance{Name: spec.Name, URL: spec.URL, Findings: []Finding{}}
	client, err := dataplane.New(dataplane.Options{URL: spec.URL, Username: spec.Username, Password: spec.Password, TLS: spec.TLS})
	if err != nil {
		out.Findings = append(out.Findings, Finding{Check: "reachable", Message: err.Error(), Hint: "mend it in the Fleet"})
		return out
	}
	f := Gather(ctx, client, spec, true)
	out.API, out.HAProxy = f.APIVersion, f.Process.Version
	out.Findings = append(out.Findings, Judge(f)...)
	return out
}

// twins finds another instance with the same address: each push to one would be taken
// for another's hand by the other.
func twins(instances []fleet.Instance, n int) []Finding {
	for other, spec := range instances {
		if other != n && spec.URL == instances[n].URL {
			return []Finding{{
				Check: "fleet", Message: fmt.Sprintf("%s has the same url: one instance is listed twice", spec.Name),
				Hint: "list it once, or mend the url of one of them",
			}}
		}
	}
	return nil
}

// statsSockets returns the paths of the stats sockets in haproxy.cfg.
func statsSockets(config []byte) map[string]bool {
	found := map[string]bool{}
	for line := range haproxycfg.Lines(config) {
		if words := line.Texts(); len(words) >= 3 && words[0] == "stats" && words[1] == "socket" {
			path := words[2]
			if at := strings.LastIndexByte(path, '@'); at >= 0 && !strings.HasPrefix(path, "/") {
				path = path[at+1:] // unix@/run/…
			}
			found[path] = true
		}
	}
	return found
}

// defaultUserlist is where the API looks for users that are not in its own file.
const defaultUserlist = "controller"

// endangeredUsers returns the name of the userlist in haproxy.cfg that the API may take
// its users from, "" for none. In a configuration of ours they are those of an Ingress. A
// password in the clear that is another one shows that the API has the user from elsewhere.
func endangeredUsers(config []byte, username, password string) string {
	endangered := ""
	for section := range haproxycfg.Sections(config) {
		for _, line := range section.Lines {
			words := line.Texts()
			switch {
			case len(words) < 2:
			case section.Keyword == "global" && words[0] == "node" && ours(words[1]):
				return ""
			case section.Keyword != "userlist" || section.Name == "" || words[0] != "user" || words[1] != username:
			case len(words) >= 4 && words[2] == "insecure-password" && words[3] != password:
			case endangered == "" || section.Name == defaultUserlist:
				endangered = section.Name
			}
		}
	}
	return endangered
}

func ours(node string) bool {
	_, _, err := bind.ParseNode(node)
	return err == nil
}
