// Command pusher rolls snapshots out to a fleet of HAProxy instances.
//
// See `pusher --help`. It never renders: it takes what a compiler put into a
// store, joins it with live endpoints and certificates, and pushes it through the
// Dataplane API of each instance.
package main

import (
	"os"
	_ "time/tzdata" // blackouts have time zones, and images may have none

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/cli"
)

func main() { os.Exit(process.Main(cli.NewCommand())) }
