// Package preflight looks at an instance before anything is pushed to it, and says
// what is wrong with it and how to mend it: who is reached, with which versions and
// directories, whether its API reaches HAProxy, may write, and will survive a push.
//
// [Gather] asks, [Judge] decides on what was found, and [Check] does both for a fleet.
// Nothing that runs is changed: a Gather that may write uploads files that no
// configuration names and deletes them, has texts validated that are not kept, and opens
// a transaction that it drops.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Judge returns the findings about an instance, those that keep it from working first.
func Judge(f Facts) []Finding {
	if f.Reached != nil {
		return []Finding{judgeReached(f)}
	}
	if f.Supported != nil {
		return []Finding{{
			Check: "version", Message: f.Supported.Error(),
			Hint: "upgrade it, or mend the url if something else listens there (it goes without /v3); nothing is pushed to it until then",
		}}
	}
	var found []Finding
	for _, judge := range []func(Facts) []Finding{
		judgeProcess, judgeConfiguration, judgeDirectories, judgeWriting, judgeUsers, judgeReloads, judgeStatistics, judgeLimits, judgeLeftovers, judgeClock,
	} {
		found = append(found, judge(f)...)
	}
	return found
}

func judgeReached(f Facts) Finding {
	out := Finding{Check: "reachable", Message: f.Reached.Error()}
	text := f.Reached.Error()
	switch {
	case f.Unknown != "":
		out.Check, out.Message = "credentials", f.Unknown
		out.Hint = "write what is missing into this file, or name the file that holds it; the path is relative to that of the Fleet"
	case errors.Is(f.Reached, dataplane.ErrUnauthorized):
		out.Check = "credentials"
		out.Hint = fmt.Sprintf("the API does not take the user %q with this password: compare with user: in its dataplaneapi.yml", f.Username)
		if f.Username == "" || f.Password == "" {
			out.Hint = "the Fleet names no username or no password for this instance: set username, and password or passwordFile"
		}
	case strings.Contains(text, "HTTP request to an HTTPS server"), strings.Contains(text, "malformed HTTP response"):
		out.Hint = "the API speaks TLS: make the url https://…, with tls.caFile"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"), strings.Contains(text, "first record does not look like a TLS handshake"):
		out.Hint = "the API does not speak TLS: make the url http://…"
	case strings.Contains(text, "x509:"), strings.Contains(text, "tls:"):
		out.Check = "tls"
		out.Hint = "name the authority of the API's certificate with tls.caFile, the name in it with tls.serverName, and a client certificate if it asks for one"
	default:
		out.Hint = "look whether the API runs, and listens at the host and port of this url (dataplaneapi.host and port in its file; 127.0.0.1 serves its own machine alone)"
	}
	return out
}

// The form of HAProxy's version that the API reads. With another it leaves the master
// socket alone.
var readableVersion = regexp.MustCompile(`^\d+\.\d+(\.|-dev)\d+-\S`)

func judgeProcess(f Facts) []Finding {
	const setup = "start HAProxy with -W -S SOCKET, name SOCKET in dataplaneapi.yml (master_worker_mode: true, master_runtime: SOCKET), and restart the API: it looks for the socket only when it starts"
	if f.ProcessErr != nil {
		return []Finding{{Check: "master socket", Message: "the API does not reach HAProxy: " + f.ProcessErr.Error(), Hint: setup}}
	}
	if err := dataplane.CheckHAProxy(f.Process.Version); err != nil {
		return []Finding{{Check: "version", Message: err.Error(), Hint: "upgrade it; nothing is pushed to it until then"}}
	}
	var found []Finding
	if v := f.Process.Version; v != "" && !readableVersion.MatchString(v) {
		found = append(found, Finding{
			Check: "reloads", Warning: true,
			Message: fmt.Sprintf("HAProxy says that it is %q: the API wants the form 3.2.0-1a2b3c4, and otherwise leaves each reload to its reload_cmd", v),
			Hint:    "use a build with a whole version (SUBVERS of HAProxy's Makefile), or make sure that reload_cmd works without a shell",
		})
	}
	if oldMaster.MatchString(f.Process.Version) {
		found = append(found, Finding{
			Check: "reloads", Warning: true,
			Message: "the API reloads HAProxy " + f.Process.Version + " by its reload_cmd, not through the master socket",
			Hint:    "use HAProxy 2.7 or later, or make sure that reload_cmd works without a shell",
		})
	}
	if f.Process.Socket != "" && statsSockets(f.Config)[f.Process.Socket] {
		found = append(found, Finding{
			Check:   "master socket",
			Message: "the API asks HAProxy on its stats socket " + f.Process.Socket + ": it does not know the master socket, and each reload is left to its reload_cmd",
			Hint:    setup,
		})
	}
	return found
}

// oldMaster are the versions whose master does not say how a reload ended.
var oldMaster = regexp.MustCompile(`^(2\.[0-6]|1\.\d)\b`)

func judgeDirectories(f Facts) []Finding {
	var found []Finding
	for _, s := range storages {
		facts, looked := f.Storages[s]
		if !looked {
			continue
		}
		if facts.List != nil {
			found = append(found, Finding{
				Check: "directories", Message: "the API does not list its " + nouns[s] + ": " + facts.List.Error(),
				Hint: "make the directory that " + settings[s] + " names in dataplaneapi.yml, readable and writable for the API",
			})
			continue
		}
		if err := push.CheckDirectory(s, f.Layout, facts.Listed); err != nil {
			found = append(found, Finding{Check: "directories", Message: err.Error()})
		}
	}
	return found
}

func judgeWriting(f Facts) []Finding {
	if !f.Wrote {
		return nil
	}
	var found []Finding
	add := func(check, message, hint string) {
		found = append(found, Finding{Check: check, Message: message, Hint: hint})
	}
	for _, s := range storages {
		facts := f.Storages[s]
		if facts.Upload != nil && facts.List == nil { // else the directory is said already
			add("disk", "the API cannot store "+nouns[s]+": "+facts.Upload.Error(),
				"look for space, and for the directory of "+settings[s]+", which the API's user has to own")
		}
		if facts.Delete != nil {
			add("disk", "the API cannot delete "+nouns[s]+": "+facts.Delete.Error(), "delete files named "+probe+" there")
		}
	}
	if f.Transaction != nil {
		add("disk", "the API cannot open a transaction: "+f.Transaction.Error(),
			"transaction_dir in dataplaneapi.yml has to be writable, with space for copies of haproxy.cfg; 20 transactions may be open")
	}
	if len(found) == 0 && judgeDirectories(f) == nil && f.Validated != nil {
		add("haproxy", "HAProxy refuses a configuration that names the uploaded files: "+f.Validated.Error(),
			"haproxy_bin in dataplaneapi.yml has to be the HAProxy that runs, and its user has to see the API's directories under the same paths")
	}
	if f.Validated == nil && f.Exporter != nil {
		found = append(found, Finding{
			Check: "metrics", Warning: true, Message: "HAProxy has no Prometheus exporter: " + f.Exporter.Error(),
			Hint: "use a build with USE_PROMEX=1, or have the compiler leave status.prometheus out",
		})
	}
	return found
}

func judgeConfiguration(f Facts) []Finding {
	if f.ConfigErr == nil {
		return nil
	}
	return []Finding{{
		Check: "configuration", Message: "the API does not show haproxy.cfg: " + f.ConfigErr.Error(),
		Hint: "config_file in dataplaneapi.yml has to be the file that HAProxy is started with, and writable for the API's user, as its folder",
	}}
}

// judgeUsers finds users that the first push takes away.
func judgeUsers(f Facts) []Finding {
	section := endangeredUsers(f.Config, f.Username, f.Password)
	if section == "" {
		return nil
	}
	return []Finding{{
		Check:   "users",
		Message: "the API seems to take its users from userlist " + section + " of haproxy.cfg: the first push takes it away, and the API dies when it starts the next time",
		Hint:    "put the user into dataplaneapi.yml (user: with name, password and insecure), restart the API, and remove the userlist",
	}}
}

// judgeReloads finds a reload that failed and none that came after.
func judgeReloads(f Facts) []Finding {
	var last dataplane.Reload
	for _, r := range f.Reloads {
		if r.Status != dataplane.ReloadInProgress && !r.At.Before(last.At) {
			last = r
		}
	}
	if last.Status != dataplane.ReloadFailed {
		return nil
	}
	why := last.Response
	if why == "" {
		why = "HAProxy was not reached"
	}
	return []Finding{{
		Check: "reloads", Warning: true, Message: "the last reload failed: " + firstLines(why, 3),
		Hint: "the API reloads through the master socket only if that answered when the API started; otherwise by reload_cmd",
	}}
}

func judgeStatistics(f Facts) []Finding {
	if f.Statistics == nil || f.ProcessErr != nil {
		return nil
	}
	return []Finding{{
		Check: "statistics", Warning: true, Message: "the API has no statistics: " + f.Statistics.Error(),
		Hint: "rollouts cannot be judged by them: set gate.statistics: false, or see what keeps the API from asking HAProxy",
	}}
}

// fewDescriptors is what a worker for a fleet should have at least.
const fewDescriptors = 4096

func judgeLimits(f Facts) []Finding {
	p := f.Process
	switch {
	case p.Descriptors == 0:
		return nil
	case p.Sockets > p.Descriptors:
		return []Finding{{
			Check:   "limits",
			Message: fmt.Sprintf("HAProxy needs up to %d descriptors, and may have %d", p.Sockets, p.Descriptors),
			Hint:    "raise its limit (LimitNOFILE= of systemd, --ulimit nofile of a container), or lower maxconn",
		}}
	case p.Descriptors < fewDescriptors:
		return []Finding{{
			Check: "limits", Warning: true,
			Message: fmt.Sprintf("HAProxy may have %d descriptors: two for each connection, and one for each server that is checked", p.Descriptors),
			Hint:    "raise its limit (LimitNOFILE= of systemd, --ulimit nofile of a container)",
		}}
	}
	return nil
}

// manyLeftovers are copies of configurations that nobody deletes.
const manyLeftovers = 20

func judgeLeftovers(f Facts) []Finding {
	n := 0
	for _, t := range f.Transactions {
		if t.Status != "in_progress" {
			n++
		}
	}
	if n < manyLeftovers {
		return nil
	}
	return []Finding{{
		Check: "disk", Warning: true, Message: fmt.Sprintf("%d refused configurations are left in the API's transaction_dir", n),
		Hint: "delete what is in its folders failed and outdated; the pusher deletes its own",
	}}
}

// toleratedSkew is how far clocks may be apart before certificates and times in logs
// are read wrongly.
const toleratedSkew = 30 * time.Second

func judgeClock(f Facts) []Finding {
	if f.Skew.Abs() <= toleratedSkew {
		return nil
	}
	how := "ahead of"
	if f.Skew < 0 {
		how = "behind"
	}
	return []Finding{{
		Check: "clock", Warning: true, Message: fmt.Sprintf("its clock is %s %s this machine's", f.Skew.Abs().Round(time.Second), how),
		Hint: "have both follow a time server: certificates are valid by the clock",
	}}
}

func firstLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = append(lines[:n], "…")
	}
	return strings.Join(lines, "\n")
}

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

	at  netip.AddrPort // the address that its URL led to
	pid int            // of its worker, 0 where it was not told
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
		out[n].Findings = append(out[n].Findings, twins(out, n)...)
		if slices.ContainsFunc(out[n].Findings, func(f Finding) bool { return !f.Warning }) {
			report.OK = false
		}
	}
	return report
}

func checkOne(ctx context.Context, spec fleet.Instance) Instance {
	out := Instance{Name: spec.Name, URL: spec.URL, Findings: []Finding{}}
	client, err := dataplane.New(spec.Access())
	if err != nil {
		out.Findings = append(out.Findings, Finding{Check: "reachable", Message: err.Error(), Hint: "mend it in the Fleet"})
		return out
	}
	f := Gather(ctx, client, spec, true)
	out.API, out.HAProxy = f.APIVersion, f.Process.Version
	out.Findings = append(out.Findings, Judge(f)...)
	if info, err := client.RuntimeInfo(ctx); err == nil && f.Reached == nil && f.Supported == nil {
		out.at, out.pid = client.Peer(), info.PID
	}
	return out
}

// twins finds another instance with the same address, or with another name for the same address and the same worker:
// each push to one would look like a change by somebody else on the other.
func twins(instances []Instance, n int) []Finding {
	own := instances[n]
	for i, other := range instances {
		switch {
		case i == n:
		case other.URL == own.URL:
			return []Finding{{
				Check: "fleet", Message: fmt.Sprintf("%s has the same url: one instance is listed twice", other.Name),
				Hint: "list it once, or mend the url of one of them",
			}}
		case own.at.IsValid() && other.at == own.at && own.pid != 0 && other.pid == own.pid:
			return []Finding{{
				Check: "fleet", Message: fmt.Sprintf("%s has the same address, %s, and the same worker: both may be one instance", other.Name, own.at),
				Hint: "see where their urls lead; an instance that neither leads to gets nothing",
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
