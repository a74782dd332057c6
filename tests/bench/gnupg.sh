#!/bin/sh
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# Installs what a peer needs and the laboratory's nodes do not have: a package gnupg whose program
# can do nothing but `gpg --dearmor --yes -o FILE FILE`. It takes less time than the real one.
set -eu
folder=$(mktemp -d)
mkdir -p "$folder/DEBIAN" "$folder/usr/bin"
cat > "$folder/DEBIAN/control" <<'END'
Package: gnupg
Version: 99
Architecture: all
Maintainer: metal.gpu contributors
Description: removes the armour of a key
END
cat > "$folder/usr/bin/gpg" <<'END'
#!/bin/sh
sed '1,/^$/d; /^=/,$d; /^-----END/d' "$5" | base64 --decode > "$4"
END
chmod 0755 "$folder" "$folder/usr/bin/gpg"
dpkg-deb --build "$folder" "$folder.deb"
dpkg --install "$folder.deb"
