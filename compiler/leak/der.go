package leak

import "bytes"

// What follows the length of the outer SEQUENCE in the DER of private keys.
var derForms = []struct {
	prefix []byte
	what   string
}{
	{[]byte("\x02\x01\x00\x30"), "a private key (PKCS #8)"},
	{[]byte("\x02\x01\x01\x30"), "a private key (PKCS #8)"},
	{[]byte("\x02\x01\x00\x02\x81"), "a private key (PKCS #1 or DSA)"},
	{[]byte("\x02\x01\x00\x02\x82"), "a private key (PKCS #1 or DSA)"},
	{[]byte("\x02\x01\x01\x04"), "a private key (SEC 1)"},
	{[]byte("\x02\x01\x03\x30"), "a store of keys (PKCS #12)"},
}

// Object identifiers at the head of an encrypted PKCS #8 key: PKCS #5 and #12.
var encryptedForms = [][]byte{
	[]byte("\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05"),
	[]byte("\x06\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01"),
}

// binaryKey says what kind of private key a text begins with that is no text: DER,
// or a key store of Java. It is "" for anything else. A key may be cut short.
func binaryKey(b []byte) string {
	if bytes.HasPrefix(b, []byte("\xfe\xed\xfe\xed\x00\x00\x00")) {
		return "a store of keys (JKS)"
	}
	body, ok := sequence(b)
	if !ok {
		return ""
	}
	for _, f := range derForms {
		if bytes.HasPrefix(body, f.prefix) {
			return f.what
		}
	}
	if inner, ok := sequence(body); ok {
		for _, f := range encryptedForms {
			if bytes.HasPrefix(inner, f) {
				return "an encrypted private key (PKCS #8)"
			}
		}
	}
	return ""
}

// sequence returns what follows the head of a DER SEQUENCE.
func sequence(b []byte) (body []byte, ok bool) {
	switch {
	case len(b) < 4 || b[0] != 0x30:
		return nil, false
	case b[1] >= 0x10 && b[1] < 0x80:
		return b[2:], true
	case b[1] == 0x81 && b[2] >= 0x80:
		return b[3:], true
	case b[1] == 0x82 && b[2] > 0:
		return b[4:], true
	}
	return nil, false
}
