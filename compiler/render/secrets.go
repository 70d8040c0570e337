package render

import (
	"bytes"
	"fmt"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// secretWord returns the word of haproxy.cfg that stands for a value of a Secret.
func secretWord(name, key string) (Text, error) {
	object, err := snapshots.ParseSecretName(name)
	if err != nil {
		return "", err
	}
	word, err := bind.SecretWord(bind.SecretKey{Secret: object, Key: key})
	return Text(word), err
}

// secret is secretWord as templates call it, and takes note of what they asked for.
func (r *rendering) secret(name, key string) (Text, error) {
	word, err := secretWord(name, key)
	if err == nil {
		r.secretsOf = append(r.secretsOf, string(word))
		r.secrets[string(word)] = true
	}
	return word, err
}

// ask takes note of words that were asked for when something was written.
func (r *rendering) ask(words []string) {
	for _, word := range words {
		r.secrets[word] = true
	}
}

// checkSecrets refuses words for values of Secrets that no template asked for: an
// object must not have the pusher write the value of any Secret it likes.
func (r *rendering) checkSecrets(config *assembly) {
	if !bytes.Contains(config.text, []byte(bind.SecretMark)) {
		return
	}
	number := 0
	for line := range bytes.Lines(config.text) {
		number++
		if bytes.Count(line, []byte(bind.SecretMark)) > r.asked(line) {
			r.faults = append(r.faults, faultOf{len(r.set.files), Fault{
				Message: fmt.Sprintf("the line holds %s, which stands for the value of a Secret", bind.SecretMark),
				Hint:    "only templates can ask for one, with the function secret", Origin: config.origins[number-1], Refused: true,
			}})
		}
	}
}

// asked counts the words of a line that stand for what templates asked for.
func (r *rendering) asked(line []byte) int {
	n := 0
	for word := range bytes.FieldsSeq(line) {
		if r.secrets[string(word)] {
			n++
		}
	}
	return n
}
