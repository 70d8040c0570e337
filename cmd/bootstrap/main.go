// Command bootstrap is what the containers of an instance start: it lays out the folders
// that HAProxy and the Dataplane API share, and runs the two. It needs no shell and no
// library, so that any image will do. The package bootstrap says more.
package main

import (
	"os"

	"github.com/hapsnap/hapsnap/internal/bootstrap"
)

func main() { os.Exit(bootstrap.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }
