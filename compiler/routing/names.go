package routing

import "k8s.io/apimachinery/pkg/util/validation"

// labelProblems and subdomainProblems say why a name is no label, or no subdomain, of DNS. The
// API's own functions match expressions, which takes longer than all else that is asked of a
// usual name.
func labelProblems(name string) []string {
	if len(name) <= validation.DNS1123LabelMaxLength && isPlainName(name, false) {
		return nil // as nearly always
	}
	return validation.IsDNS1123Label(name)
}

func subdomainProblems(name string) []string {
	if len(name) <= validation.DNS1123SubdomainMaxLength && isPlainName(name, true) {
		return nil // as nearly always
	}
	return validation.IsDNS1123Subdomain(name)
}

// isPlainName reports whether a name is one label of DNS, or several, whatever their length.
func isPlainName(name string, several bool) bool {
	inside := false // whether a label may end here
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			inside = true
		case c == '-' && i > 0 && name[i-1] != '.':
			inside = false
		case c == '.' && inside && several:
			inside = false
		default:
			return false
		}
	}
	return inside
}
