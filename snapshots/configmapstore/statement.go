package configmapstore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// SignedAnnotation of a manifest, and of a channel, holds the [statement] that is signed, and
// SignatureAnnotation its signature, as ssh-keygen -Y sign or gpg make it. Both are annotations, so
// that a listing shows which snapshots are signed, and by whom, without fetching one.
const (
	SignedAnnotation    = "hapsnap.dev/signed"
	SignatureAnnotation = "hapsnap.dev/signature"
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

var errStatement = fmt.Errorf("annotation %s is not what this version signs", SignedAnnotation)

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
