// Package charts is the chart of hapsnap, embedded: the provisioner renders it for Gateways.
package charts

import "embed"

// Hapsnap is the source of the chart, below the folder hapsnap.
//
//go:embed hapsnap/Chart.yaml hapsnap/values.yaml hapsnap/values.schema.json hapsnap/dashboards hapsnap/files all:hapsnap/templates
var Hapsnap embed.FS
