package snapshots

import "strings"

// Redact returns a text without the values and hashes of Secrets that the bound
// configuration holds. HAProxy quotes words of lines that it refuses.
func (b Bound) Redact(text string) string {
	for _, secret := range b.secrets {
		text = strings.ReplaceAll(text, secret, "(hidden)")
	}
	return text
}
