package config

// Snippets says who may write lines of haproxy.cfg.
type Snippets struct {
	// Namespaces are those whose Ingresses may use hapsnap.dev/snippet. People who
	// may write there what HAProxy does can read the files and the environment of
	// HAProxy, certificates too, and change what becomes of the requests of others:
	// allow those who may see and do all that.
	Namespaces Namespaces `json:"namespaces"`
}
