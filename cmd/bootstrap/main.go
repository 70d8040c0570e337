// Command bootstrap is the program that the containers of an instance start. It makes the folders that HAProxy
// and the Dataplane API share, and runs the two. It needs no shell and no library, so it works in any image.
// Package bootstrap has the details.
package main

import (
	"os"

	"github.com/hapsnap/hapsnap/internal/bootstrap"
)

func main() { os.Exit(bootstrap.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }
