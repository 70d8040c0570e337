package leak

import "strings"

// hidden is written where private material was.
const hidden = "(hidden)"

// Redact returns a message without private material. What may be words is taken out
// of messages about objects of the namespace of its Secret only. A message that holds
// something private in another form is hidden as a whole.
func (x *Index) Redact(message, namespace string) string {
	counts := func(f Finding) bool { return !f.Plain || f.Secret.Secret.Namespace == namespace }
	clean := message
	for _, f := range x.values(view{text: []byte(message)}) {
		if counts(f) {
			clean = strings.ReplaceAll(clean, message[f.At:f.At+f.Length], hidden)
		}
	}
	for _, f := range x.Find([]byte(clean)) {
		if counts(f) {
			return hidden + ": it holds " + f.What
		}
	}
	return clean
}
