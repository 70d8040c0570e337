package templates

import "embed"

// FS holds the shipped templates.
//
//go:embed haproxy maps files partials extend
var FS embed.FS

// ReadyBackend is the backend of haproxy.cfg that represents the instance itself.
const ReadyBackend = "hapsnap_ready"
