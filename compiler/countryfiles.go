package compiler

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/access"
)

// mostCountryBytes is the largest size of a file of the list of countries. A million networks take less.
const mostCountryBytes = 128 << 20

// readCountryFiles reads the files of the list of countries, including all files in its folders. A file that is empty
// or cannot be read is an error: a volume may not be mounted, or a download may have failed.
func readCountryFiles(paths []string) []access.CountryFile {
	var out []access.CountryFile
	for _, path := range paths {
		files, wrong := countryFilesIn(path)
		if wrong != "" {
			out = append(out, access.CountryFile{Path: path, Wrong: wrong})
		}
		for _, file := range files {
			f := access.CountryFile{Path: file}
			f.Text, f.Wrong = readCountryFile(file)
			out = append(out, f)
		}
	}
	return out
}

// countryFilesIn returns the files of a folder in order, without hidden ones. If the path is a file, it returns that
// file.
func countryFilesIn(path string) (files []string, wrong string) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, whyUnread(err)
	}
	if !info.IsDir() {
		return []string{path}, ""
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, whyUnread(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if slices.Sort(files); len(files) == 0 {
		return nil, "has no file"
	}
	return files, ""
}

func readCountryFile(path string) (text, wrong string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", whyUnread(err)
	case !info.Mode().IsRegular(): // reading it may never end
		return "", "is not a file"
	case info.Size() > mostCountryBytes:
		return "", fmt.Sprintf("is larger than %d bytes", mostCountryBytes)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", whyUnread(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostCountryBytes))
	switch {
	case err != nil:
		return "", whyUnread(err)
	case strings.TrimSpace(string(data)) == "":
		return "", "is empty"
	}
	return string(data), ""
}

// whyUnread says why a file cannot be read. It leaves out the path, with which the message begins.
func whyUnread(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "does not exist"
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return "cannot be read: " + err.Error()
}
