package templates

import "embed"

// FS holds the shipped templates.
//
//go:embed haproxy maps files partials extend
var FS embed.FS
