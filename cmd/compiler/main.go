// Command compiler turns manifests into snapshots of HAProxy configurations.
//
// See `compiler --help`. It holds no credentials of any HAProxy instance: what
// it writes goes to a directory or a store, and the pusher takes it from there.
package main

import (
	"os"

	"github.com/hapsnap/hapsnap/compiler/cli"
	"github.com/hapsnap/hapsnap/internal/process"
)

func main() { os.Exit(process.Main(cli.NewCommand())) }
