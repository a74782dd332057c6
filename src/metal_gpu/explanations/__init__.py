# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tell what an error line means, from the catalogue of findings and docs/troubleshooting.md."""
