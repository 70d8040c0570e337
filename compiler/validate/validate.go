// Package validate decides whether a rendered artifact may be published. It makes the checks that
// HAProxy does not make (text that the Dataplane API would damage without an error, and private keys
// and values of Secrets), then joins the artifact with placeholders for live data and has HAProxy
// itself check the whole.
//
// It returns faults with the origin of the line: the template and the objects. An error means that the check was not
// possible: HAProxy is missing, or there is no space for the staging directory.
package validate

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	stdpem "encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// Input is what [Checker.Check] validates.
type Input struct {
	Artifact render.Artifact
	// Keys gives the kinds of keys in the Secrets that the compiler saw. Other Secrets count as ECDSA.
	Keys map[snapshots.SecretName]KeyType
	// Private knows the values of Secrets that must not be published. With nil only
	// private keys are refused.
	Private *leak.Index
	// OnePerText makes HAProxy check only one backend of each text. It is for verdicts after which nothing is published:
	// HAProxy checks all backends before they are published first.
	OnePerText bool
}

// Verdict is the result of a check. Without faults the artifact may be published.
type Verdict struct {
	Faults   []render.Fault
	Warnings []render.Fault // of HAProxy's
	// Needs is what the artifact takes from Secrets. It is nil if a fault was found before that was read.
	Needs []bind.Need
}

// Check validates an artifact. Each step finds all of its faults at once. After a step with faults it stops, since the next
// steps would find the same faults again.
func (c *Checker) Check(ctx context.Context, in Input) (Verdict, error) {
	private := lookForPrivate(in)
	defer private.wait()
	config, _ := fileOf(in.Artifact, snapshots.ConfigFile)
	places := newPlaces(in.Artifact)
	text := textKey(sha256.Sum256(config))
	if faults := places.located(snapshots.ConfigFile, c.checkLines(text, config)); len(faults) > 0 {
		leaks, _ := private.found()
		return Verdict{Faults: append(faults, leaks...)}, nil
	}
	staging, err := c.stagings.take(len(in.Artifact.Certificates))
	if err != nil {
		return Verdict{}, fmt.Errorf("make staging directory: %w", err)
	}
	defer c.stagings.give(staging)
	unbound, sure := unboundKey(c.Path, text, in)
	if short, known := c.short.of(unbound, in.Artifact, staging.Path); sure && known {
		leaks, warnings := private.found()
		if len(leaks) > 0 {
			return Verdict{Faults: leaks}, nil
		}
		_, silent, _, err := c.ask(ctx, staging, lineMap{places: places, bound: short.Bound}, short.Bound)
		if err != nil || silent {
			return Verdict{Warnings: warnings, Needs: short.needs}, err
		}
	}
	return c.checkBinding(ctx, in, staging, places, private, text, unbound)
}

// checkBinding validates an artifact whose lines and files have been checked, except for private material. Text is the key of its
// haproxy.cfg.
func (c *Checker) checkBinding(ctx context.Context, in Input, staging *staging, places places, private *search, text, unbound textKey) (Verdict, error) {
	bound, needs, faults, err := c.bind(in, LayoutIn(staging.Path))
	leaks, warnings := private.found()
	if len(leaks) > 0 {
		return Verdict{Faults: leaks}, nil
	}
	if err != nil || len(faults) > 0 {
		return Verdict{Faults: faults, Needs: needs}, err
	}
	lines := lineMap{places: places, bound: bound}
	key, sure := acceptedKey(c.Path, text, bound, staging.Path)
	known := sure && c.accepted.has(key)
	if !known {
		if faults := lines.located(checkLines(bound.Config)); len(faults) > 0 {
			return Verdict{Faults: faults, Needs: needs}, nil
		}
	}
	asked := askedOf(bound, known || in.OnePerText)
	verdict, silent, err := c.checkBound(ctx, staging, lines, asked, known, known || in.OnePerText)
	switch {
	case err != nil || !silent || !sure:
	case known:
		c.short.put(unbound, staging.Path, asked, needs)
	case !in.OnePerText:
		c.accepted.put(key, nil)
	}
	verdict.Warnings, verdict.Needs = append(warnings, verdict.Warnings...), needs
	return verdict, err
}

// checkLines makes the checks of single lines of a haproxy.cfg. It remembers the texts in which it found nothing.
func (c *Checker) checkLines(key textKey, config []byte) []fault {
	if c.sound.has(key) {
		return nil
	}
	faults := checkLines(config)
	if len(faults) == 0 {
		c.sound.put(key, nil)
	}
	return faults
}

// checkBound checks with HAProxy and with the Dataplane API's parser at the same time. If the configuration is known to be
// accepted but for the content of its maps, the parser is not asked. If HAProxy refuses what it is asked about, and that is short, it
// is asked about the whole. Silent says that neither found anything.
func (c *Checker) checkBound(ctx context.Context, in *staging, lines lineMap, asked bind.Bound, known, short bool) (v Verdict, silent bool, err error) {
	var torn []fault
	var panics process.Catcher
	g, ctx := errgroup.WithContext(ctx)
	if !known {
		g.Go(func() error {
			panics.Do(func() { torn = c.trips.check(lines.bound.Config) })
			return nil
		})
	}
	g.Go(func() (err error) {
		panics.Do(func() {
			var refused bool
			v, silent, refused, err = c.ask(ctx, in, lines, asked)
			if refused && short { // it may have missed what was left out
				v, silent, _, err = c.ask(ctx, in, lines, askedOf(lines.bound, false))
			}
		})
		return err
	})
	err = g.Wait()
	panics.Rethrow()
	if err != nil {
		return Verdict{}, false, err
	}
	if len(v.Faults) == 0 {
		v.Faults = lines.located(torn)
	}
	return v, silent && len(torn) == 0, nil
}

// bind joins the artifact with placeholders, and returns what it takes from Secrets. If that fails, the templates are at
// fault, since they write directives and file names.
func (c *Checker) bind(in Input, layout bind.Layout) (bind.Bound, []bind.Need, []render.Fault, error) {
	draft := snapshots.Draft{Files: in.Artifact.Files, Certificates: in.Artifact.Certificates}
	config, _ := fileOf(in.Artifact, snapshots.ConfigFile)
	needs, wrong := c.binder.Needs(config, draft.Certificates)
	if wrong != nil {
		return bind.Bound{}, nil, bindFaults(in.Artifact, wrong), nil
	}
	needs = append([]bind.Need{}, needs...) // none are not nil
	live, err := c.StandIns(in.Keys, needs)
	if err != nil {
		return bind.Bound{}, needs, nil, err
	}
	if err := draft.Check(); err != nil {
		return bind.Bound{}, needs, bindFaults(in.Artifact, err), nil
	}
	s := draft.Number(1, snapshots.ID{})
	slots, err := c.binder.Placeholder(s)
	if err != nil {
		return bind.Bound{}, needs, bindFaults(in.Artifact, err), nil
	}
	bound, wrong := c.binder.Bind(s, bind.Inputs{Live: live, Slots: slots, Layout: layout})
	if wrong != nil {
		return bind.Bound{}, needs, bindFaults(in.Artifact, wrong), nil
	}
	return bound, needs, nil, nil
}

// bindPlace matches the place in an error of Bind and of Needs.
var bindPlace = regexp.MustCompile(`^(?:bind \S+: )?haproxy\.cfg:(\d+): `)

// bindFaults are the faults for an error of Bind or of Needs, with their lines if
// they have any.
func bindFaults(a render.Artifact, err error) []render.Fault {
	if _, ok := errors.AsType[*bind.DirectiveError](err); ok {
		return directiveFaults(a)
	}
	text := err.Error()
	if m := bindPlace.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		return []render.Fault{newPlaces(a).fault(snapshots.ConfigFile, line, strings.TrimPrefix(text, m[0]), "")}
	}
	return []render.Fault{{Message: text}}
}

// mostVerdicts is how many verdicts a generation of a memo holds.
const mostVerdicts = 20_000

// verdictMemo remembers verdicts about texts by their content, so that none can
// be out of date. It keeps those that were asked for lately, in two generations,
// and may be used by several goroutines.
type verdictMemo struct {
	mu         sync.Mutex
	young, old map[textKey][]int
}

func (m *verdictMemo) get(key textKey) ([]int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.young[key]; ok {
		return v, true
	}
	v, ok := m.old[key]
	if ok {
		m.add(key, v)
	}
	return v, ok
}

func (m *verdictMemo) has(key textKey) bool {
	_, ok := m.get(key)
	return ok
}

func (m *verdictMemo) put(key textKey, lost []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(key, lost)
}

func (m *verdictMemo) add(key textKey, lost []int) {
	if m.young == nil || len(m.young) >= mostVerdicts {
		m.young, m.old = map[textKey][]int{}, m.young
	}
	m.young[key] = lost
}

// maxPrivateWarnings bounds the warnings about values that may stay. Tenants decide how many Secrets there are.
const maxPrivateWarnings = 20

// search looks for private material while other steps of a check run, as it takes as long as binding.
type search struct {
	running          sync.WaitGroup
	panics           process.Catcher
	faults, warnings []render.Fault
}

func lookForPrivate(in Input) *search {
	s := &search{}
	s.running.Go(func() { s.panics.Do(func() { s.faults, s.warnings = checkPrivate(in.Artifact, in.Private) }) })
	return s
}

// wait returns when nothing of the input is read any more.
func (s *search) wait() { s.running.Wait() }

// found waits for the result of checkPrivate.
func (s *search) found() (faults, warnings []render.Fault) {
	s.wait()
	s.panics.Rethrow()
	return s.faults, s.warnings
}

// checkPrivate looks for private keys and for values of Secrets in all files, in whatever form. A
// message does not quote what was found, and there is one for all lines that the same template wrote
// for the same objects.
//
// A private key is a fault in any place. The value of a Secret is a fault on a line that an object of
// its own namespace contributed to, and that object is to blame. Elsewhere it is a warning, and so is a
// value that the templates or the configuration hold: people who may write a Secret choose its values,
// and must not be able to stop others.
func checkPrivate(a render.Artifact, x *leak.Index) (faults, warnings []render.Fault) {
	type cause struct{ what, origin string }
	seen := map[cause]bool{}
	for _, f := range a.Files {
		line, counted := 1, 0
		for _, found := range x.FindInFile(f.Path, f.Content) {
			line, counted = line+bytes.Count(f.Content[counted:found.At], []byte("\n")), found.At
			origin := a.Origin(f.Path, line)
			own := slices.ContainsFunc(origin.Objects, func(object routing.Origin) bool { return object.Object.Namespace == found.Secret.Secret.Namespace })
			c := cause{f.Path + found.What, fmt.Sprint(origin.Template, origin.Line, distinct(origin))}
			if seen[c] || found.Plain && !own || found.Secret.Key != "" && isOurs(origin) && !found.Written {
				continue
			}
			seen[c] = true
			switch isKey := found.Secret.Key == ""; {
			case isKey || own && !found.Written:
				faults = append(faults, privateFault(f.Path, line, origin, found))
			case len(warnings) < maxPrivateWarnings:
				warnings = append(warnings, privateWarning(f.Path, line, origin, found))
			}
		}
	}
	return faults, warnings
}

func privateFault(path string, line int, origin render.LineOrigin, found leak.Finding) render.Fault {
	hint := "refer to a Secret of type kubernetes.io/tls instead"
	if found.Secret.Key != "" {
		hint = "a template gets it with the function secret; if nothing in that Secret is secret, list it in publicSecrets"
	}
	return render.Fault{
		Message: path + " would hold " + found.What + ", and snapshots are kept where many can read them",
		Hint:    fmt.Sprintf("it is on line %d of that file; %s", line, hint),
		Origin:  origin, File: path, Line: line, Namespace: found.Secret.Secret.Namespace,
	}
}

// privateWarning names the objects of the line in the hint, since the warning is for the administrator:
// people of another namespace must not learn of the Secret.
func privateWarning(path string, line int, origin render.LineOrigin, found leak.Finding) render.Fault {
	hint := fmt.Sprintf("it is on line %d of that file", line)
	if names := distinct(origin); len(names) > 0 {
		hint += ", for " + names[0]
	}
	return render.Fault{
		Message: path + " holds " + found.What + ", and snapshots are kept where many can read them",
		Hint:    hint + "; if it is secret, change it there and in the Secret; if not, list the Secret in publicSecrets",
		Origin:  origin, File: path, Line: line,
	}
}

// isOurs reports whether hapsnap itself has written a line: a shipped template, for no
// object.
func isOurs(o render.LineOrigin) bool {
	return len(o.Objects) == 0 && strings.HasPrefix(o.Template, render.ShippedPrefix)
}

// distinct names the objects of a line.
func distinct(o render.LineOrigin) []string {
	var out []string
	for _, object := range o.Objects {
		out = append(out, object.Object.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// KeyType is a kind of private key. HAProxy, OpenSSL and the Dataplane API treat the kinds differently,
// so that each certificate is replaced by one of the same kind.
type KeyType string

// The kinds of keys that HAProxy serves.
const (
	ECDSA   KeyType = "ecdsa"
	RSA     KeyType = "rsa"
	Ed25519 KeyType = "ed25519"
)

// KeyTypeOf returns the kind of key that a PEM certificate is for, ECDSA if it cannot tell.
func KeyTypeOf(certificates []byte) KeyType {
	block, _ := stdpem.Decode(certificates)
	if block == nil {
		return ECDSA
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ECDSA
	}
	switch leaf.PublicKeyAlgorithm {
	case x509.RSA:
		return RSA
	case x509.Ed25519:
		return Ed25519
	}
	return ECDSA
}

// keyRing holds one throw-away certificate of each kind, made when it is first needed.
type keyRing struct {
	mu   sync.Mutex
	made map[KeyType][]byte
}

// get returns the PEM of a certificate and its key.
func (k *keyRing) get(t KeyType) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if made, ok := k.made[t]; ok {
		return made, nil
	}
	now := time.Now()
	key, err := makeKey(t)
	if err != nil {
		return nil, fmt.Errorf("make a temporary %s certificate: %w", t, err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hapsnap.invalid"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a temporary %s certificate: %w", t, err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make a temporary %s certificate: %w", t, err)
	}
	var out bytes.Buffer
	out.Write(stdpem.EncodeToMemory(&stdpem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	out.Write(stdpem.EncodeToMemory(&stdpem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	made := out.Bytes()
	if k.made == nil {
		k.made = map[KeyType][]byte{}
	}
	k.made[t] = made
	return made, nil
}

func makeKey(t KeyType) (crypto.Signer, error) {
	switch t {
	case RSA:
		return rsa.GenerateKey(rand.Reader, 2048)
	case Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// These stand for users and values of Secrets, so that HAProxy and the parser of the Dataplane API see
// the lines that they will be on. The value needs quotes, as some real ones do. The hash is of no
// password.
const (
	throwawayHash  = "$5$rounds=1000$hapsnap$..........................................." //nolint:gosec // It is no credential.
	throwawayValue = "throw away"
)

// StandIns returns live data with a throw-away value for each need, and for the fallback certificate.
// Keys gives the kinds of keys that Secrets are known to hold. It has no endpoints.
func (c *Checker) StandIns(keys map[snapshots.SecretName]KeyType, needs []bind.Need) (bind.Live, error) {
	live := bind.Live{
		Certificates: map[snapshots.SecretName][]byte{}, Authorities: map[snapshots.SecretName][]byte{},
		Users: map[snapshots.SecretName][]htpasswd.User{}, Values: map[bind.SecretKey]string{},
	}
	var err error
	if live.Fallback, err = c.keys.get(ECDSA); err != nil {
		return bind.Live{}, err
	}
	for _, need := range needs {
		switch need.Use {
		case snapshots.UseCertificate:
			live.Certificates[need.Secret], err = c.certificate(keys, need.Secret)
		case snapshots.UseCA:
			live.Authorities[need.Secret], err = pem.ParseAuthorities(live.Fallback)
		case snapshots.UseUsers:
			// Each Secret gives another name, since a list may have the users of several.
			live.Users[need.Secret] = []htpasswd.User{{Name: shortName(need.Secret), Hash: throwawayHash}}
		case snapshots.UseValue:
			live.Values[bind.SecretKey{Secret: need.Secret, Key: need.Key}] = throwawayValue
		}
		if err != nil {
			return bind.Live{}, err
		}
	}
	return live, nil
}

// certificate returns one of the kind that the Secret was seen to hold.
func (c *Checker) certificate(keys map[snapshots.SecretName]KeyType, secret snapshots.SecretName) ([]byte, error) {
	kind, ok := keys[secret]
	if !ok {
		kind = ECDSA
	}
	return c.keys.get(kind)
}

// shortName returns a name of at most 64 bytes.
func shortName(secret snapshots.SecretName) string {
	sum := sha256.Sum256([]byte(secret.String()))
	return "throw-away-" + hex.EncodeToString(sum[:16])
}
