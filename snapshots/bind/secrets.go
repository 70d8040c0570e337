package bind

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
)

// secretBinder are the users and values of Secrets that haproxy.cfg itself holds
// once it is bound.
type secretBinder struct {
	live    Live
	words   bool // some line may have words for values
	missing map[Need]bool
	used    map[string]bool // the hashes and values that were written
}

func newSecretBinder(config []byte, live Live) *secretBinder {
	return &secretBinder{live: live, words: bytes.Contains(config, []byte(SecretMark)), missing: map[Need]bool{}, used: map[string]bool{}}
}

// appendUsers appends the user lines of a Secret, and returns how many they are.
// Where the users are missing there are none, and nobody gets in; so it is if one
// of them is not what Parse returns.
func (b *secretBinder) appendUsers(out []byte, secret snapshots.SecretName) ([]byte, int) {
	users := b.live.Users[secret]
	usable := len(users) > 0
	for _, u := range users {
		usable = usable && htpasswd.Check(u) == nil
	}
	if !usable {
		b.missing[Need{Use: snapshots.UseUsers, Secret: secret}] = true
		return out, 0
	}
	for _, u := range users {
		out = append(append(out, "    user "...), u.Name...)
		out = append(append(out, " password "...), u.Hash...)
		out = append(out, '\n')
		b.used[u.Hash] = true
	}
	return out, len(users)
}

// replaceWords returns a line with the values that its words stand for.
func (b *secretBinder) replaceWords(line []byte) ([]byte, error) {
	if !b.words || !bytes.Contains(line, []byte(SecretMark)) {
		return line, nil
	}
	var out []byte
	done := 0
	for _, w := range (haproxycfg.Line{Text: line}).Words() {
		key, ok, err := secretWordIn(line[w.Start:w.End])
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(append(out, line[done:w.Start]...), b.value(key)...)
			done = w.End
		}
	}
	return append(out, line[done:]...), nil
}

func (b *secretBinder) value(key SecretKey) string {
	value, err := SecretValue([]byte(b.live.Values[key]))
	if err != nil {
		b.missing[Need{Use: snapshots.UseValue, Secret: key.Secret, Key: key.Key}] = true
		return standInValue(key, b.live.Fallback)
	}
	b.used[value], b.used[quoteWord(value)] = true, true
	return quoteWord(value)
}

// written returns the hashes and values that were written, the longest first: one
// may be part of another.
func (b *secretBinder) written() []string {
	return slices.SortedFunc(maps.Keys(b.used), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(y), len(x)), cmp.Compare(x, y))
	})
}

// standInValue is written where a value is missing. It is the same at all
// instances, and nobody who does not have the pusher's key can tell it: where
// the value protects something, it stays closed.
func standInValue(key SecretKey, fallback []byte) string {
	h := hmac.New(sha256.New, fallback)
	h.Write([]byte(key.String()))
	return "missing-" + hex.EncodeToString(h.Sum(nil)[:16])
}
