// Package previous has the version of the Core Rule Set that agents carry besides the newest: policy.PreviousRulesVersion.
// It offers the files as the module of the newest version does.
//
// # Decisions
//
// The rules are an archive in this repository. A module can be had in one version under one name, and a replace in
// go.mod, which would give the other version another name, would keep everybody from `go install` of the programs.
package previous

import (
	"archive/zip"
	"bytes"
	_ "embed" // of the archive
	"io/fs"
	"strings"
)

//go:generate go run generate.go 4.22.0

//go:embed rules.zip
var archive []byte

// FS has the folder @owasp_crs and the files beside it.
var FS fs.FS = opened()

func opened() files {
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		panic("read the previous rules: " + err.Error()) // the archive is a part of the program
	}
	return files{r}
}

// files reads files by any path that leads to the folder: the engine puts the folder of the file that includes another
// one before its name.
type files struct{ *zip.Reader }

func (f files) ReadFile(name string) ([]byte, error) {
	if i := strings.Index(name, "@"); i > 0 {
		name = name[i:]
	}
	return fs.ReadFile(f.Reader, name)
}
