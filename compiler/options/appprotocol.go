package options

// appProtocols are the values of a Service port's appProtocol that ask for
// another protocol than HTTP/1.1 in the clear: those of Kubernetes, of IANA, and
// the names that implementations have in common (Kubernetes documentation,
// Services, "Application protocol").
var appProtocols = map[string]string{
	"kubernetes.io/h2c": "h2", "h2c": "h2", "http2": "h2", "grpc": "grpc",
	"https": "h1-tls", "kubernetes.io/wss": "h1-tls", "wss": "h1-tls",
}

// AppProtocol returns the options that the appProtocol of a Service's port stands
// for, for those who have not said otherwise. A value that is not known asks for
// nothing.
func AppProtocol(name string) Values {
	protocol, ok := appProtocols[name]
	if !ok {
		return Values{}
	}
	values, _ := Read(OnService, map[string]string{Prefix + "backend-protocol": protocol})
	return values
}

// SameProtocol reports whether two values of appProtocol ask for the same.
func SameProtocol(a, b string) bool { return appProtocols[a] == appProtocols[b] }
