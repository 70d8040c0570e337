package configmapstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
)

// signing holds the key with which a store signs, and the list of accepted signers.
type signing struct {
	key     signature.Key
	allowed signature.Allowed

	mu       sync.Mutex
	list     [sha256.Size]byte // the list of signers that the verdicts are about
	verdicts map[[sha256.Size]byte]verdict
}

// verdict is the result of verifying one signature.
type verdict struct {
	by  signature.Signer
	why error // it is refused, nil if it is not
}

// maxVerdicts bounds how many verdicts are remembered, since everybody who may create ConfigMaps can make any
// number of refused signatures.
const maxVerdicts = 10_000

// sign sets the annotations by which an object is signed. Where signatures are verified, it refuses to
// make one that would not be accepted.
func (s *signing) sign(o *corev1.ConfigMap, what statement) error {
	delete(o.Annotations, signedAnnotation)
	delete(o.Annotations, signatureAnnotation)
	if !s.key.Enabled() && !s.allowed.Enabled() {
		return nil
	}
	if !s.key.Enabled() {
		return process.WithHint(fmt.Errorf("%w: there is no key for signatures, and they are asked for", snapshots.ErrUntrusted),
			"name the file of a private key with --signing-key")
	}
	text := what.String()
	armored, err := s.key.SignText([]byte(text), what.at)
	if err != nil {
		return err
	}
	if s.allowed.Enabled() {
		if _, err := s.allowed.VerifyText([]byte(text), armored, what.at); err != nil {
			return fmt.Errorf("it would be %w: %w", snapshots.ErrUntrusted, err)
		}
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[signedAnnotation], o.Annotations[signatureAnnotation] = text, armored
	return nil
}

// verify returns the statement that the annotations sign, and the signer. The error is a
// [signature.RefusedError] if the signer is not accepted, or the statement is about something else than
// the name in the store.
func (s *signing) verify(annotations map[string]string, kind, store, name string) (statement, signature.Signer, error) {
	refuse := func(why error) (statement, signature.Signer, error) {
		return statement{}, signature.Signer{}, signature.RefusedError{Reason: why}
	}
	text, armored := annotations[signedAnnotation], annotations[signatureAnnotation]
	if text == "" || armored == "" {
		return refuse(errUnsigned)
	}
	what, err := parseStatement(text)
	if err != nil {
		return refuse(err)
	}
	if err := what.about(kind, store, name); err != nil {
		return refuse(err)
	}
	by, err := s.judge(text, armored, what.at)
	return what, by, err
}

var errUnsigned = errors.New("it has no signature")

// judge verifies a signature, unless it did before with the same list of signers: a store is listed
// again and again.
func (s *signing) judge(text, armored string, at time.Time) (signature.Signer, error) {
	list, err := s.allowed.Fingerprint()
	if err != nil {
		return signature.Signer{}, err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%d\n%s%s", len(text), text, armored))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list != list || s.verdicts == nil || len(s.verdicts) >= maxVerdicts {
		s.list, s.verdicts = list, map[[sha256.Size]byte]verdict{}
	}
	if known, ok := s.verdicts[key]; ok {
		return known.by, known.why
	}
	by, err := s.allowed.VerifyText([]byte(text), armored, at)
	if _, refused := errors.AsType[signature.RefusedError](err); err == nil || refused {
		s.verdicts[key] = verdict{by, err}
	}
	return by, err
}

// divide removes the snapshots without an accepted signature from a listing. The store ignores them and their
// annotations.
func (s *Store) divide(l *listing) error {
	if !s.signing.allowed.Enabled() {
		return nil
	}
	trusted := func(all []stored) (good, bad []stored, err error) {
		for _, found := range all {
			_, _, err := s.signing.verify(found.signed, signedSnapshot, s.String(), found.id.String())
			if refused, is := errors.AsType[signature.RefusedError](err); is {
				found.refused = refused.Reason
				bad = append(bad, found)
			} else if err != nil {
				return nil, nil, fmt.Errorf("list %s: %w", s, err)
			} else {
				good = append(good, found)
			}
		}
		return good, bad, nil
	}
	var err error
	if l.complete, l.refused, err = trusted(l.complete); err != nil {
		return err
	}
	var strange []stored
	if l.staged, l.intruding, err = trusted(l.staged); err != nil {
		return err
	}
	if l.partial, strange, err = trusted(l.partial); err != nil {
		return err
	}
	l.refused = append(l.refused, strange...)
	l.delivery = ""
	for _, found := range append(l.partial[:len(l.partial):len(l.partial)], l.complete...) {
		if found.delivered {
			l.delivery = found.name
		}
	}
	return nil
}

// vouch returns an error if signatures are verified, and the manifest of a snapshot has no accepted one.
func (s *Store) vouch(o *corev1.ConfigMap, id snapshots.ID, text []byte) error {
	if !s.signing.allowed.Enabled() {
		return nil
	}
	what, _, err := s.signing.verify(o.Annotations, signedSnapshot, s.String(), id.String())
	if refused, is := errors.AsType[signature.RefusedError](err); is {
		return fmt.Errorf("ConfigMap %s/%s is %w: %w", s.namespace, o.Name, snapshots.ErrUntrusted, refused.Reason)
	}
	if err != nil {
		return err
	}
	if contentOf(text) != what.content {
		return fmt.Errorf("%w: %s is not what was signed", snapshots.ErrCorrupt, snapshots.ManifestFile)
	}
	return nil
}

// vouchChannel is vouch for the channel. It returns the channel's number, 0 where signatures are not
// verified.
func (s *Store) vouchChannel(o *corev1.ConfigMap) (uint64, error) {
	if !s.signing.allowed.Enabled() || o == nil {
		return 0, nil
	}
	what, _, err := s.signing.verify(o.Annotations, signedChannel, s.String(), "")
	if err == nil && !what.covers(o.Data) {
		err = signature.RefusedError{Reason: errors.New("it is not what was signed")}
	}
	if refused, is := errors.AsType[signature.RefusedError](err); is {
		return 0, process.WithHint(fmt.Errorf("it is %w: %w", snapshots.ErrUntrusted, refused.Reason),
			"look at what it says, then sign that: pusher sign --signing-key FILE")
	}
	return what.serial(), err
}

// covers reports whether the statement is about these keys of a channel.
func (s statement) covers(data map[string]string) bool {
	same, err := stateChannel(s.store, s.serial(), data, s.at)
	return err == nil && same.content == s.content
}

// ours reports whether the newest snapshot counts as published already. With a key and without a list of
// signers, it must be signed with that key. A snapshot from before the key, or with another key, is published
// once more.
func (s *Store) ours(found stored) (bool, error) {
	if !s.signing.key.Enabled() || s.signing.allowed.Enabled() {
		return true, nil
	}
	what, foreign := parseStatement(found.signed[signedAnnotation])
	if foreign != nil || what.about(signedSnapshot, s.String(), found.id.String()) != nil {
		return false, nil //nolint:nilerr // that it is not ours is no error
	}
	armored, err := s.signing.key.SignText([]byte(what.String()), what.at)
	return armored == found.signed[signatureAnnotation], err
}

// Signature returns who signed a snapshot. A missing or refused signature is a result, and no error.
func (s *Store) Signature(ctx context.Context, id snapshots.ID) (signature.Finding, error) {
	o, err := s.find(ctx, id)
	if err != nil {
		return signature.Finding{}, fmt.Errorf("read signature of %s: %w", id, err)
	}
	found := signature.Finding{State: signature.StateNone}
	if by, signed := signature.ClaimText([]byte(o.Annotations[signedAnnotation]), o.Annotations[signatureAnnotation]); signed {
		found.State, found.Signer = signature.StateUnverified, by
	}
	if !s.signing.allowed.Enabled() {
		return found, nil
	}
	text, err := s.manifestText(ctx, o)
	if err != nil && !errors.Is(err, snapshots.ErrCorrupt) {
		return signature.Finding{}, s.unlessDeleted(ctx, id, fmt.Errorf("read signature of %s: %w", id, err))
	}
	if err == nil {
		err = s.vouch(o, id, text)
	}
	if err != nil {
		found.State, found.Error = signature.StateRefused, err.Error()
		return found, nil //nolint:nilerr // the finding says it
	}
	_, found.Signer, err = s.signing.verify(o.Annotations, signedSnapshot, s.String(), id.String())
	found.State = signature.StateAllowed
	return found, err
}

// Refused returns the snapshots without an accepted signature, by ID, with the reason of each. No
// instance runs them.
func (s *Store) Refused(ctx context.Context) ([]channel.Refused, error) {
	l, err := s.list(ctx, readable)
	return s.refusals(l), err
}

func (s *Store) refusals(l listing) []channel.Refused {
	slices.SortFunc(l.refused, func(a, b stored) int { return a.id.Compare(b.id) })
	var out []channel.Refused
	for _, found := range l.refused {
		out = append(out, channel.Refused{ID: found.id, Reason: fmt.Sprintf("ConfigMap %s/%s is %s: %s", s.namespace, found.name, snapshots.ErrUntrusted, found.refused)})
	}
	return out
}

// Remember tells the store what a reader saw of it before, as [channel.View.Seen] says.
func (s *Store) Remember(seen channel.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.believed = seen.Of(s.String()).Channel
}

// remembered returns what Remember needs.
func (s *Store) remembered() channel.Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return channel.Seen{Store: s.String(), Channel: s.believed}
}

// versionOf returns a text that differs between the states of a ConfigMap, "" without one. serial is the number
// in the signed statement, 0 if signatures are not verified.
func versionOf(o *corev1.ConfigMap, serial uint64) string {
	if o == nil {
		return ""
	}
	version := string(o.UID) + "/" + o.ResourceVersion
	if serial > 0 {
		version += "/" + strconv.FormatUint(serial, 10)
	}
	return version
}

// believe records the channel's ConfigMap, nil for none. It refuses one that does not come after the
// last one it believed, unless the channel says that this is accepted.
func (s *Store) believe(o *corev1.ConfigMap, serial uint64, c channel.Channel) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := versionOf(o, serial)
	if why := rewound(s.believed, now); why != "" {
		gone := &channel.RewoundError{Channel: s.believed, Message: why}
		if !c.AcceptsRewind(gone) {
			return gone
		}
		s.log.Info("a person accepted that the channel was set back", "store", s.String(), "version", now, "before", s.believed)
	}
	s.believed = now
	return nil
}

// rewound says why a ConfigMap of one version does not come after another. It returns "" if it does.
//
// People, and tools such as Argo CD and Flux, may write anything into it, also what was in it before:
// it stays the same object, and its resourceVersion grows, which Kubernetes promises to be comparable
// (KEP-5504). An object that was deleted and made again has another UID, and one that was restored with
// the whole of etcd a lower version. Where channels are signed, only a signer can write back what was
// in one before, since the number must not go down.
func rewound(before, now string) string {
	uid, version, serial := versionParts(now)
	oldUID, oldVersion, oldSerial := versionParts(before)
	switch {
	case before == "" || before == now:
		return ""
	case now == "":
		return fmt.Sprintf("it is gone, and was there at version %s", oldVersion)
	case uid != oldUID:
		return "it was deleted and made again"
	}
	is, err := strconv.ParseUint(version, 10, 64)
	was, oldErr := strconv.ParseUint(oldVersion, 10, 64)
	if err == nil && oldErr == nil && is < was {
		return fmt.Sprintf("it is at version %d, and was at %d", is, was)
	}
	if serial > 0 && serial < oldSerial {
		return fmt.Sprintf("somebody put back the one that was signed as number %d, after number %d was read", serial, oldSerial)
	}
	return ""
}

// versionParts takes a version apart.
func versionParts(text string) (uid, version string, serial uint64) {
	uid, rest, _ := strings.Cut(text, "/")
	version, number, _ := strings.Cut(rest, "/")
	serial, _ = strconv.ParseUint(number, 10, 64) // 0 of one without
	return uid, version, serial
}

// signedAnnotation of a manifest, and of a channel, holds the [statement] that is signed, and
// signatureAnnotation its signature, as ssh-keygen -Y sign or gpg make it. Both are annotations, so
// that a listing shows which snapshots are signed, and by whom, without fetching one.
const (
	signedAnnotation    = "hapsnap.dev/signed"
	signatureAnnotation = "hapsnap.dev/signature"
)

// The kinds of statements.
const (
	signedSnapshot = "hapsnap snapshot v1"
	signedChannel  = "hapsnap channel v1"
)

// statement is what a signer signs: a content under a name, in one store. The name of a snapshot has
// its revision, so that no snapshot can be put in the place of another; that of a channel is a number
// that grows with each change, so that an old one cannot be put back.
type statement struct {
	kind    string
	store   string // its URL
	name    string
	content string    // SHA-256 of snapshot.yaml, which has the digests of all else, or of the channel's keys
	at      time.Time // when it was signed, by the signer's word
}

// String returns the text that is signed.
func (s statement) String() string {
	return fmt.Sprintf("%s\nstore %s\nname %s\ncontent %s\ntime %s\n", s.kind, s.store, s.name, s.content, s.at.UTC().Format(time.RFC3339))
}

// parseStatement reads what String returns, and nothing else.
func parseStatement(text string) (statement, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 6 {
		return statement{}, errStatement
	}
	at, err := time.Parse(time.RFC3339, strings.TrimPrefix(lines[4], "time "))
	s := statement{
		kind: lines[0], store: strings.TrimPrefix(lines[1], "store "), name: strings.TrimPrefix(lines[2], "name "),
		content: strings.TrimPrefix(lines[3], "content "), at: at,
	}
	if err != nil || s.String() != text {
		return statement{}, errStatement
	}
	return s, nil
}

var errStatement = fmt.Errorf("annotation %s is not what this version signs", signedAnnotation)

// contentOf returns the digest of a text.
func contentOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// stateSnapshot returns the statement for a manifest.
func stateSnapshot(store string, m snapshots.Manifest, text []byte) statement {
	id := snapshots.NewID(m.Spec.Revision, m.Spec.Digest)
	return statement{signedSnapshot, store, id.String(), contentOf(text), moment1970(m.Provenance.Time)}
}

// stateChannel returns the statement for the keys of a channel. Notes that people keep beside them
// decide nothing, and are left out.
func stateChannel(store string, serial uint64, data map[string]string, at time.Time) (statement, error) {
	says := maps.Clone(data)
	delete(says, noteKey)
	text, err := json.Marshal(says)
	if err != nil {
		return statement{}, fmt.Errorf("encode channel: %w", err)
	}
	return statement{signedChannel, store, strconv.FormatUint(serial, 10), contentOf(text), moment1970(at)}, nil
}

// serial returns the number of a channel.
func (s statement) serial() uint64 {
	n, err := strconv.ParseUint(s.name, 10, 64)
	if err != nil || s.kind != signedChannel {
		return 0
	}
	return n
}

// moment1970 returns a time that signatures can hold: OpenPGP knows none before 1970.
func moment1970(t time.Time) time.Time {
	if t.Unix() < 0 {
		t = time.Unix(0, 0)
	}
	return t.UTC().Truncate(time.Second)
}

// about returns why a statement is about something else than the name in the store, nil if it is not.
func (s statement) about(kind, store, name string) error {
	switch {
	case s.kind != kind:
		return fmt.Errorf("its signature is for a %s", strings.TrimSuffix(strings.TrimPrefix(s.kind, "hapsnap "), " v1"))
	case s.store != store:
		return fmt.Errorf("its signature is for %s", s.store)
	case kind == signedSnapshot && s.name != name:
		return fmt.Errorf("its signature is for %s", s.name)
	}
	return nil
}
