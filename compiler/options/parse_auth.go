package options

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

var realmForm = regexp.MustCompile(`^[ !#-\[\]-~]{1,200}$`)

// realm reads what can stand in quotes in a WWW-Authenticate header.
func realm(text string) (string, error) {
	if !realmForm.MatchString(text) {
		return "", fault("is not a realm", `use at most 200 characters of ASCII, without " and \`)
	}
	return text, nil
}

// authService reads the URL of a Service that is asked for authentication.
func authService(text string) (*policy.ExternalAuth, error) {
	const hint = "use http://SERVICE.NAMESPACE.svc:PORT/PATH"
	if err := visible(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || strings.Contains(text, "#"):
		return nil, fault("is not the URL of a Service", hint)
	case u.Scheme == "https":
		return nil, fault("asks for TLS, which is not supported towards an authentication service", hint)
	case u.Scheme != "http":
		return nil, fault("is not the URL of a Service", hint)
	}
	ref, err := serviceRef(u.Host)
	if err != nil {
		return nil, err
	}
	_, path, _ := strings.Cut(text, "://"+u.Host)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return &policy.ExternalAuth{Service: ref, Host: u.Host, Path: path}, nil
}

// serviceRef reads the DNS name of a Service, perhaps with a port.
func serviceRef(host string) (policy.ServiceRef, error) {
	name, port, hasPort := strings.Cut(host, ":")
	ref := policy.ServiceRef{Port: 80}
	if hasPort {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
			return ref, faultOf(host, "has no valid port", "use 1 to 65535")
		}
		ref.Port = n
	}
	short := strings.TrimSuffix(strings.TrimSuffix(name, ".cluster.local"), ".svc")
	ref.Name, ref.Namespace, _ = strings.Cut(short, ".")
	if (strings.HasSuffix(name, ".cluster.local") && !strings.HasSuffix(name, ".svc.cluster.local")) || (short != name && ref.Namespace == "") ||
		len(validation.IsDNS1123Label(ref.Name)) > 0 || (ref.Namespace != "" && len(validation.IsDNS1123Label(ref.Namespace)) > 0) {
		return ref, faultOf(name, "is not a Service of the cluster", "use SERVICE, or SERVICE.NAMESPACE.svc: other hosts would have to be resolved by DNS while requests wait")
	}
	return ref, nil
}

// signIn reads a location that a parameter can be added to.
func signIn(text string) (string, error) {
	r, err := redirect(text)
	switch {
	case err != nil:
		return "", err
	case r.Location != text:
		return "", fault("has more than one word", "write a path or a URL")
	case strings.Contains(text, "#"):
		return "", fault("holds a fragment", "leave out what follows #")
	}
	return text, nil
}

// parameterName reads the name of a parameter of a query.
func parameterName(text string) (string, error) {
	if !keyForm.MatchString(text) {
		return "", fault("is not the name of a parameter", "use letters, digits, - and _")
	}
	return text, nil
}

// requestHost stands for the host of a client's request.
const requestHost = "request-host"

// authHost reads what a service gets as Host.
func authHost(text string) (string, error) {
	if text == requestHost {
		return text, nil
	}
	return hostPort(text)
}

// carriedHeader reads the name of a header that can be handed on.
func carriedHeader(text string) (string, error) {
	name, err := token(text)
	if err == nil && slices.Contains(notEdited, strings.ToLower(name)) {
		return "", fault("is not a header that can be handed on", "leave it out")
	}
	return name, err
}
